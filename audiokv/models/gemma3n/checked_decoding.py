"""Decoding that doubts what it reads: a text that may not be speech is decoded again, locked.

The second time the question behind the audio is asked more strictly and names the language. Its
prefix stays what it was, so a doubt costs one more tail and nothing else. Evidence decides then,
since people do say "I'm sorry, but I cannot come":

- a clean second text is taken;
- otherwise the first one is believed where the heads that follow the audio looked at it, or, for a
  model without such heads, where the same was said again, and, if hardly anybody but a model would
  say that, where it was also heard growing word by word, as speech does and a refusal does not;
- otherwise the step has no text. Committed words stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from audiokv.models.gemma3n.tail_decoding import TailDecoder
from audiokv.models.gemma3n.text_checks import Doubt, Fault, find_doubt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from audiokv.models.base import Hypothesis
    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.gemma3n_stream import GemmaModel
    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.prompt_layout import Frame
    from audiokv.models.gemma3n.tail_decoding import Continuation, TailRequest
    from audiokv.models.gemma3n.vocabulary import Vocabulary

_SENTENCE_ENDS = ".!?\u3002\uff01\uff1f\u2026\n"
# Nobody speaks so many tokens in so little time; only counted from the start of a segment, where
# it is known how long the audio is.
_TOKENS_PER_SLOT = 2
_SPARE_TOKENS = 8
# Share of its attention that a head which follows the audio spends on audio. Measured with the
# digit model: 0.96 to 1.00 for what was said, 0.35 to 0.78 for other text of the same vocabulary.
_MIN_HEARD_SHARE = 0.85
_MAX_UNHEARD_SHARE = 0.5  # from here on a text that shows no other sign is doubted as well
_MIN_UNHEARD_TOKENS = 4
_MIN_SAMENESS = 0.8  # of two texts that count as the same


@dataclass(slots=True)
class DoubtCounts:
    """How often a stream's texts were doubted.

    Attributes:
        n_decoded_again: Steps that were decoded a second time.
        n_replaced: Of these, steps whose second text was taken.
        n_dropped: Of these, steps that were left without a text.
    """

    n_decoded_again: int = 0
    n_replaced: int = 0
    n_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """How a step was asked for.

    Attributes:
        frame: Tokens around audio and text.
        language: ISO 639-1 code that was asked for, or None.
    """

    frame: Frame
    language: str | None


class CheckedDecoder:
    """Decodes the tails of one stream and checks what comes.

    Args:
        decoder: Decodes.
        vocabulary: Of the model.

    Attributes:
        counts: How often texts were doubted.
    """

    def __init__(self, decoder: TailDecoder, vocabulary: Vocabulary) -> None:
        self.counts = DoubtCounts()
        self._latest = DoubtCounts()  # before the latest step
        self._decoder = decoder
        self._vocabulary = vocabulary
        self.begin_window()

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """Layer and head of those that follow the audio."""
        return self._decoder.heads

    def begin_window(self) -> None:
        """Forget what earlier audio was believed to say."""
        self._believed: set[tuple[Fault, str]] = set()
        self._forced: list[int] = []
        self._heard: list[list[str]] = []  # words of texts that nothing was wrong with
        self.begin_segment()

    def begin_segment(self) -> None:
        """Note that what is said from here on begins a sentence, whatever stands before it."""
        self._forced_at_start: list[int] | None = None  # set with the next step

    def decoding(
        self, prefix: Prefix, request: TailRequest, rows: NDArray[np.int64], asked: Asked
    ) -> Work[Continuation]:
        """The work of one step; see ``TailDecoder.decode``.

        Args:
            prefix: The prefix.
            request: What the tail begins with.
            rows: Rows of the prefix whose attention is wanted.
            asked: How it was asked for; without a stricter question nothing is doubted.
        """
        self._latest = replace(self.counts)
        first = yield from self._decoder.decoding(prefix, request, rows)
        stricter = asked.frame.after_audio_locked
        doubt = self._new_doubt(first, request, asked.language) if stricter else None
        if doubt is None:
            return first
        locked = replace(request, after_audio=stricter, draft=tuple(first.tokens))
        again = yield from self._decoder.decoding(prefix, locked, rows)
        self.counts.n_decoded_again += 1
        if again.tokens and self._doubt(again, request, asked.language) is None:
            self.counts.n_replaced += 1
            return again
        if doubt.fault == Fault.REPEAT:
            return first  # one copy of what repeats stays
        if self._is_spoken(doubt, first, again):
            self._believed.add((doubt.fault, doubt.sign))
            return first
        self.counts.n_dropped += 1
        return _without_text(first, len(request.forced))

    def marked(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return the latest step's hypothesis with what became of its doubts."""
        counts, before = self.counts, self._latest
        return replace(
            hypothesis,
            is_decoded_again=counts.n_decoded_again > before.n_decoded_again,
            is_dropped=counts.n_dropped > before.n_dropped,
        )

    def _new_doubt(
        self, made: Continuation, request: TailRequest, language: str | None
    ) -> Doubt | None:
        """Return a doubt that was not settled before, and remember what nothing is wrong with."""
        if self._forced != request.forced:
            self._forced, self._heard = list(request.forced), []
        if self._forced_at_start is None:
            self._forced_at_start = self._forced
        doubt = self._doubt(made, request, language)
        if doubt is None:
            self._heard.append(self._text(made).split())
        elif (doubt.fault, doubt.sign) in self._believed:
            return None
        return doubt

    def _doubt(
        self, made: Continuation, request: TailRequest, language: str | None
    ) -> Doubt | None:
        if made.is_looping:
            return Doubt(Fault.REPEAT, "")
        n_possible = _TOKENS_PER_SLOT * request.n_spoken_slots + _SPARE_TOKENS
        if not request.forced and len(made.tokens) > n_possible:
            return Doubt(Fault.CROWDED, "", is_strong=True)
        before = self._vocabulary.text(request.forced).rstrip(" ")
        doubt = find_doubt(
            self._text(made),
            language,
            is_sentence_start=(
                request.forced == self._forced_at_start or before[-1:] in _SENTENCE_ENDS
            ),
        )
        if doubt is None and len(made.tokens) >= _MIN_UNHEARD_TOKENS:
            share = self._heard_share(made)
            if share is not None and share < _MAX_UNHEARD_SHARE:
                return Doubt(Fault.UNHEARD, "")
        return doubt

    def _is_spoken(self, doubt: Doubt, first: Continuation, again: Continuation) -> bool:
        if doubt.fault == Fault.CROWDED:
            return False
        words = self._text(first).split()
        is_same = _sameness(words, self._text(again).split()) >= _MIN_SAMENESS
        share = self._heard_share(first)
        if doubt.fault in {Fault.DRIFT, Fault.UNHEARD}:
            return is_same  # a translation looks at the audio too
        if share is not None:
            return share >= _MIN_HEARD_SHARE
        return is_same and (not doubt.is_strong or self._has_grown(words))

    def _has_grown(self, words: list[str]) -> bool:
        return any(
            heard and len(heard) < len(words) and heard == words[: len(heard)]
            for heard in self._heard
        )

    def _heard_share(self, made: Continuation) -> float | None:
        """Return how much of their attention the heads spent on audio; None without such heads."""
        if not self.heads or not made.tokens:
            return None
        of_text = made.attention[:, -len(made.tokens) - 1 : -1]
        return float(of_text.sum(axis=-1).mean())

    def _text(self, made: Continuation) -> str:
        return self._vocabulary.text(made.tokens)


def checked_decoder(model: GemmaModel, stops: frozenset[int]) -> CheckedDecoder:
    """Return a decoder for one stream of a model.

    Args:
        model: The model.
        stops: Tokens that end a text.
    """
    decoder = TailDecoder(
        model.speech,
        stops,
        model.special.unspoken | model.vocabulary.special,
        model.settings.alignment_heads,
    )
    return CheckedDecoder(decoder, model.vocabulary)


def _sameness(first: list[str], second: list[str]) -> float:
    """Return the share of words that two texts have in common, 0 to 1; marks do not count."""
    matcher = SequenceMatcher(a=_plain(first), b=_plain(second), autojunk=False)
    return float(matcher.ratio())


def _plain(words: list[str]) -> list[str]:
    return ["".join(filter(str.isalnum, word)).casefold() for word in words]


def _without_text(made: Continuation, n_forced: int) -> Continuation:
    return replace(
        made,
        tokens=[],
        log_probabilities=[],
        attention=made.attention[:, : n_forced + 1],
        is_looping=False,
    )
