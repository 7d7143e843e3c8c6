"""Greedy decoding from a draft.

The last hypothesis is verified in one pass, and only what changed is decoded anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from audiokv.models.whisper.network import SelfCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from audiokv.models.whisper.cross_cache import CrossCache
    from audiokv.models.whisper.network import WhisperNetwork
    from audiokv.models.whisper.text import WhisperText

_RESYNC_TOKENS = 4  # how far ahead in the draft a corrected token is looked for
_TOKENS_PER_SECOND = 12  # faster than any language is spoken, even in bytes of CJK characters
_SPARE_TOKENS = 16
_MAX_PERIOD_TOKENS = 8
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Decoded:
    """The greedy continuation of a context.

    Attributes:
        tokens: Text tokens, without the end of text.
        log_probabilities: One a token.
        attention: Alignment heads' weights over audio slots, shape (heads, forced + tokens + 1,
            audio slots): one row for each forced text token, each new token and the end; 0 for
            slots that are not held.
        no_speech_probability: Of the window, before any text.
        is_complete: Whether the model itself ended the text.
        n_forwards: Decoder passes it took.
    """

    tokens: list[int]
    log_probabilities: list[float]
    attention: NDArray[np.float32]
    no_speech_probability: float
    is_complete: bool
    n_forwards: int


@dataclass(frozen=True, slots=True)
class _Model:
    """What a continuation needs of its decoder.

    Attributes:
        network: The model.
        text: Its vocabulary.
        penalty: Added to the logits, shape (n_vocabulary,): minus infinity bars a token.
        first_penalty: Likewise for the first token of a text, which may not be blank or the end.
        own: The static key/value cache.
    """

    network: WhisperNetwork
    text: WhisperText
    penalty: torch.Tensor
    first_penalty: torch.Tensor
    own: SelfCache


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the static cache holds after a run: a valid prefix, and what its tokens looked at."""

    tokens: list[int]
    attention: torch.Tensor  # (alignment heads, tokens, audio slots)
    no_speech_probability: float

    def shared_prefix(self, context: list[int]) -> int:
        n_same = 0
        for known, wanted in zip(self.tokens, context, strict=False):
            if known != wanted:
                break
            n_same += 1
        return n_same


class DraftDecoder:
    """Decodes one stream's windows; holds the static key/value cache.

    Args:
        network: The model.
        text: Its vocabulary.
        suppressed: Text tokens never to be produced.
    """

    def __init__(self, network: WhisperNetwork, text: WhisperText, suppressed: list[int]) -> None:
        penalty = torch.zeros(network.dims.n_vocabulary)
        penalty[torch.tensor(suppressed, dtype=torch.long)] = -torch.inf
        penalty[text.n_text_tokens + 1 :] = -torch.inf
        first_penalty = penalty.clone()
        first_penalty[torch.tensor([*text.blank, text.end_of_text])] = -torch.inf
        own = SelfCache(network.dims, network.dtype)
        self._model = _Model(network, text, penalty, first_penalty, own)
        self._memory: _Memory | None = None

    def forget(self) -> None:
        """Note that the window begins elsewhere: nothing computed before is valid any more."""
        self._memory = None

    def language_logits(self, cross: CrossCache, language_ids: list[int]) -> NDArray[np.float32]:
        """Return the logits of the languages, in the order of their ids."""
        self.forget()  # this writes over the cache
        network = self._model.network
        hidden, _ = network.decode([self._model.text.start], 0, self._model.own, cross)
        result: NDArray[np.float32] = network.logits(hidden)[0, torch.tensor(language_ids)].numpy()
        return result

    def decode(
        self,
        context: list[int],
        n_forced: int,
        draft: list[int],
        cross: CrossCache,
        n_settled: int = 0,
    ) -> Decoded:
        """Continue a context greedily.

        Args:
            context: Prompt, start tokens and the forced (committed) text tokens.
            n_forced: How many tokens at the end of the context are forced text.
            draft: A guess at the continuation; changes the cost, never the result.
            cross: The encoded audio.
            n_settled: How many of the forced tokens keep the keys and values they have from when
                their audio was held; computed anew without it they would mislead what follows.
        """
        run = _Run(self._model, context, n_forced, cross)
        if self._memory is not None and n_settled:
            run.resume(self._memory, len(context) - n_forced + n_settled)
        result = self._complete(run, n_forced, draft)
        self._memory = run.memory()
        return result

    def _complete(self, run: _Run, n_forced: int, draft: list[int]) -> Decoded:
        position = self._model.network.dims.max_target_positions
        n_slots = run.cross.n_audio_slots
        wanted = int(n_slots / 50 * _TOKENS_PER_SECOND) + _SPARE_TOKENS - n_forced
        limit = max(1, min(position - len(run.context) - 1, wanted))
        guess = draft
        while not run.is_complete and len(run.tokens) < limit:
            n_before = len(run.tokens)
            # A pass adds one token of its own to what it accepts.
            n_accepted = run.extend(guess[: limit - len(run.tokens) - 1])
            guess = resynchronised(guess, n_accepted, run.tokens[-1] if run.tokens else None)
            for n in range(n_before + 1, len(run.tokens) + 1):
                if is_repeating(run.tokens[:n]):
                    # The guards decide what of it was said; more of it only costs time.
                    run.cut(n)
                    return run.result()
        return run.result()


def is_repeating(tokens: Sequence[int]) -> bool:
    """Tell whether a text ends in the same few tokens again and again."""
    n = len(tokens)
    return any(
        n >= period * _REPEATS
        and all(tokens[-i] == tokens[-i - period] for i in range(1, period * (_REPEATS - 1) + 1))
        for period in range(1, _MAX_PERIOD_TOKENS + 1)
    )


def resynchronised(guess: list[int], n_accepted: int, correction: int | None) -> list[int]:
    """Return what of the draft may still follow after a token that differed from it."""
    rest = guess[n_accepted:]
    for skipped, token in enumerate(rest[:_RESYNC_TOKENS]):
        if token == correction:
            return rest[skipped + 1 :]
    return rest[1:]


class _Run:
    """One continuation in progress: verified tokens, and the input the next pass starts with."""

    def __init__(self, model: _Model, context: list[int], n_forced: int, cross: CrossCache) -> None:
        self._model = model
        self.context = context
        self.cross = cross
        self._pending = context  # accepted tokens the network has not seen
        self._position = 0
        self._n_skipped = len(context) - n_forced - 1  # rows before the one that predicts text
        self._n_forced = n_forced
        self._rows: list[torch.Tensor] = []
        self._start_index = context.index(model.text.start)
        self.no_speech_probability = 0.0
        self.tokens: list[int] = []
        self.log_probabilities: list[float] = []
        self.is_complete = False
        self.n_forwards = 0

    def resume(self, memory: _Memory, most: int) -> None:
        """Take over what the cache holds of the context, up to a number of its tokens.

        Taken over is all up to the start of the text, or nothing; the last token of the context is
        run in any case, since it predicts.
        """
        n_known = min(memory.shared_prefix(self.context), most, len(self.context) - 1)
        if n_known <= self._n_skipped + 1:
            return
        missing = self.cross.n_audio_slots - memory.attention.shape[-1]
        self._rows = [functional.pad(memory.attention[:, :n_known], (0, missing))]
        self._pending = self.context[n_known:]
        self._position = n_known
        self.no_speech_probability = memory.no_speech_probability

    def memory(self) -> _Memory:
        """Return what the cache holds now."""
        attention = torch.cat(self._rows, dim=1)
        tokens = [*self.context, *self.tokens][: attention.shape[1]]
        return _Memory(tokens, attention[:, : len(tokens)], self.no_speech_probability)

    def extend(self, guess: list[int]) -> int:
        """Run the pending tokens and a guess; keep what the model agrees with, and one more.

        Returns:
            How many tokens of the guess were right.
        """
        model = self._model
        inputs = [*self._pending, *guess]
        hidden, attention = model.network.decode(inputs, self._position, model.own, self.cross)
        n_known = len(self._pending) - 1
        if self.n_forwards == 0 and self._position == 0:
            self._read_no_speech(hidden)
        self.n_forwards += 1
        logits = model.network.logits(hidden[n_known:])
        is_first = not self.tokens and self._n_forced == 0
        logits[0] += model.first_penalty if is_first else model.penalty
        logits[1:] += model.penalty
        choices = logits.argmax(dim=-1)
        chosen_log_probabilities = (
            logits.gather(1, choices[:, None])[:, 0] - logits.logsumexp(dim=-1)
        ).tolist()
        n_accepted = 0
        chosen = choices.tolist()
        while n_accepted < len(guess) and chosen[n_accepted] == guess[n_accepted]:
            n_accepted += 1
        n_kept = n_known + 1 + n_accepted
        self._rows.append(self.cross.by_time(attention[:, :n_kept]))
        self._position += n_kept
        new = chosen[: n_accepted + 1]
        if new[-1] == model.text.end_of_text:
            self.is_complete = True
            new = new[:-1]
        self.tokens.extend(new)
        self.log_probabilities.extend(chosen_log_probabilities[: len(new)])
        self._pending = new[-1:]
        return n_accepted

    def _read_no_speech(self, hidden: torch.Tensor) -> None:
        first = hidden[self._start_index : self._start_index + 1]
        probabilities = self._model.network.logits(first)[0].softmax(dim=-1)
        self.no_speech_probability = float(probabilities[self._model.text.no_speech])

    def cut(self, n_tokens: int) -> None:
        """Give up what comes after a number of tokens."""
        del self.tokens[n_tokens:], self.log_probabilities[n_tokens:]
        self.is_complete = False

    def result(self) -> Decoded:
        # A run cut short has not seen its last token, so nothing says where that one ends.
        n_tokens = len(self.tokens) if self.is_complete else len(self.tokens) - 1
        n_rows = self._n_forced + n_tokens + 1
        attention = torch.cat(self._rows, dim=1)[:, self._n_skipped : self._n_skipped + n_rows]
        return Decoded(
            tokens=self.tokens[:n_tokens],
            log_probabilities=self.log_probabilities[:n_tokens],
            attention=attention.numpy(),
            no_speech_probability=self.no_speech_probability,
            is_complete=self.is_complete,
            n_forwards=self.n_forwards,
        )
