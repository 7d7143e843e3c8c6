"""When a word is settled: committed words never change, the tail behind them may."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.captions import Word


def bare(text: str) -> str:
    """Return a word without case and punctuation, for telling whether two are the same word."""
    kept = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
    return kept.casefold() or text


def n_agreeing(first: Sequence[Word], second: Sequence[Word]) -> int:
    """Return how many words at the start of two hypotheses are the same."""
    n = 0
    for a, b in zip(first, second, strict=False):
        if bare(a.text) != bare(b.text):
            break
        n += 1
    return n


class Stabilizer(Protocol):
    """Decides how much of a hypothesis is settled."""

    def observe(self, words: Sequence[Word], heard_ms: int) -> int:
        """Take the next hypothesis and return how many of its words to commit now.

        Args:
            words: Revisable words, after those already committed.
            heard_ms: End of the audio the hypothesis was made from.
        """

    def restart(self) -> None:
        """Forget earlier hypotheses: the next one starts after a cut."""


@dataclass(slots=True)
class LocalAgreement:
    """Commits what two consecutive hypotheses agree on, for recognisers that do not align.

    Source: Liu et al., "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by
    Partial Hypothesis Selection" (Interspeech 2020), with n = 2.
    """

    _previous: tuple[Word, ...] = ()

    def observe(self, words: Sequence[Word], heard_ms: int) -> int:  # noqa: ARG002  protocol
        """Commit the common beginning of this and the previous hypothesis."""
        n = n_agreeing(self._previous, words)
        self._previous = tuple(words[n:])
        return n

    def restart(self) -> None:
        """Forget the previous hypothesis."""
        self._previous = ()


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """When an aligned word counts as settled.

    Attributes:
        guard_ms: Audio that must have been heard after the word's end.
        n_agreeing: Consecutive hypotheses that must hold the word at its place.
        sure: Confidence from which ``n_agreeing`` is enough; one more is asked for below it, and
            one more again below ``fair``.
        fair: See ``sure``.
        max_age_ms: Age at which a word is committed even if hypotheses still differ.
    """

    guard_ms: int = 450
    n_agreeing: int = 2
    sure: float = 0.85
    fair: float = 0.6
    max_age_ms: int = 5000


@dataclass(slots=True)
class AlignedCommit:
    """Commits words whose end lies well before the end of the audio and that keep coming back.

    The last word of a hypothesis waits for a follower: only then is its punctuation known.
    Source of the first rule: Papi et al., "AlignAtt" (Interspeech 2023).
    """

    options: CommitOptions = field(default_factory=CommitOptions)
    _seen: list[tuple[str, int]] = field(default_factory=list)

    def observe(self, words: Sequence[Word], heard_ms: int) -> int:
        """Commit the words at the start that fulfil both rules."""
        seen: list[tuple[str, int]] = []
        same = True
        for i, word in enumerate(words):
            text = bare(word.text)
            same = same and i < len(self._seen) and self._seen[i][0] == text
            seen.append((text, self._seen[i][1] + 1 if same else 1))
        n = 0
        for word, (_, times) in zip(words, seen, strict=True):
            age_ms = heard_ms - word.end_ms
            has_follower = n < len(words) - 1
            is_sure = age_ms >= self.options.guard_ms and times >= self._n_needed(word)
            if not (has_follower and is_sure) and age_ms < self.options.max_age_ms:
                break
            n += 1
        self._seen = seen[n:]
        return n

    def _n_needed(self, word: Word) -> int:
        options = self.options
        return (
            options.n_agreeing + (word.confidence < options.sure) + (word.confidence < options.fair)
        )

    def restart(self) -> None:
        """Forget earlier hypotheses."""
        self._seen = []


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """When a word that is not settled is shown.

    Attributes:
        guard_ms: Audio that must have been heard after the word's end, unless it came back.
        sure: Confidence from which a word replaces a shown one at once.
        language_confidence: Below it nothing is shown: the words may be of another language.
    """

    guard_ms: int = 250
    sure: float = 0.6
    language_confidence: float = 0.5


@dataclass(slots=True)
class TailView:
    """Chooses which revisable words are shown, so that captions do not flicker.

    New words are added once they were heard whole. A word already shown is replaced only by one the
    recogniser is sure of, or that two hypotheses in a row want there; until then it stands, in the
    form it was shown.
    """

    options: ShowOptions = field(default_factory=ShowOptions)
    _shown: tuple[Word, ...] = ()
    _previous: tuple[Word, ...] = ()

    def observe(self, tail: Sequence[Word], heard_ms: int) -> tuple[Word, ...]:
        """Return the words to show."""
        n_same = n_agreeing(self._shown, tail)
        n_twice = n_agreeing(self._previous, tail)
        is_sure = n_same < len(tail) and tail[n_same].confidence >= self.options.sure
        is_outdated = n_same < len(self._shown) and (
            is_sure or n_twice > n_same or len(tail) == n_same == len(self._previous)
        )
        kept = tuple(
            replace(new, text=old.text)
            for old, new in zip(self._shown[:n_same], tail, strict=False)
        )
        if n_same < len(self._shown) and not is_outdated:
            self._shown = (*kept, *self._shown[n_same:])
        else:
            n = n_same
            while n < len(tail) and (
                n < n_twice or heard_ms - tail[n].end_ms >= self.options.guard_ms
            ):
                n += 1
            self._shown = (*kept, *tail[n_same:n])
        self._previous = tuple(tail)
        return self._shown

    def advance(self, committed: Sequence[Word]) -> None:
        """Take the words that were committed from the start of the tail."""
        n = len(committed)
        is_same = n_agreeing(self._shown, committed) == min(n, len(self._shown))
        self._shown = self._shown[n:] if is_same else ()
        self._previous = self._previous[n:]
