"""Greedy decoding on a tail behind the prefix, from a draft.

One pass reads the end of the audio, the committed text and the last hypothesis, and verifies that
hypothesis; decoding goes on from the first token that differs. A tail that holds wrong tokens is
rolled back and read again with what may still follow, which costs about as much as one token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.gemma3n.batch_requests import ReadTail, run_alone
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.whisper.decoding import is_repeating, resynchronised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.audio_llm.hearing_model import HearingModel
    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.prefix import Prefix

_MAX_LOGIT_ROWS = 512  # of a vocabulary of 262,400: half a gigabyte


@dataclass(frozen=True, slots=True)
class TailRequest:
    """What a tail begins with.

    Attributes:
        audio: Slots that are not in the prefix yet.
        n_own_slots: How many of them are audio; the others are padding.
        after_audio: Tokens behind the audio, at least one.
        forced: Committed text.
        draft: A guess at what follows; changes the cost, never the result.
        max_tokens: Longest text after the forced one, at least 1.
        n_spoken_slots: Slots of audio that it is about; a text that repeats itself and has more
            tokens than that was not spoken.
    """

    audio: Inputs | None
    n_own_slots: int
    after_audio: tuple[int, ...]
    forced: Sequence[int]
    draft: Sequence[int]
    max_tokens: int
    n_spoken_slots: int


@dataclass(frozen=True, slots=True)
class Continuation:
    """The greedy continuation of the forced text.

    Attributes:
        tokens: Without the stop.
        log_probabilities: One a token.
        attention: Weights of the chosen heads, shape (heads, forced + tokens + 1, columns): one
            row for each forced token, each new token and the stop; columns are the audio rows
            asked for and then the tail's own slots.
        is_complete: Whether the model itself ended the text.
        is_looping: Whether the text was cut because it repeated itself and was not spoken.
        n_passes: Passes of the text model it took.
    """

    tokens: list[int]
    log_probabilities: list[float]
    attention: NDArray[np.float32]
    is_complete: bool
    is_looping: bool
    n_passes: int


@dataclass(frozen=True, slots=True)
class TailDecoder:
    """Decodes tails of one model.

    Attributes:
        model: The model.
        stops: Tokens that end a text.
        unspoken: Tokens that are never produced.
        heads: Layer and head of those whose attention is wanted; all where none is named.
    """

    model: HearingModel
    stops: frozenset[int]
    unspoken: frozenset[int]
    heads: tuple[tuple[int, int], ...] = ()
    _barred: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Work out which logits never count."""
        size = self.model.text_config.vocab_size
        barred = torch.zeros(size, dtype=torch.bool, device=self.model.device)
        barred[[token for token in self.unspoken - self.stops if 0 <= token < size]] = True
        object.__setattr__(self, "_barred", barred)

    def decode(self, prefix: Prefix, request: TailRequest, rows: NDArray[np.int64]) -> Continuation:
        """Continue the forced text greedily; the prefix is as before afterwards.

        Args:
            prefix: The prefix.
            request: What the tail begins with.
            rows: Rows of the prefix whose attention is wanted.
        """
        return run_alone(self.decoding(prefix, request, rows))

    def decoding(
        self, prefix: Prefix, request: TailRequest, rows: NDArray[np.int64]
    ) -> Work[Continuation]:
        """The work of ``decode``."""
        n_held = prefix.held
        columns = np.concatenate((rows, n_held + np.arange(request.n_own_slots)))
        run = _Run(self, request, columns)
        guess = list(request.draft)
        while not run.is_done:
            offered = guess[: run.room - 1]
            with prefix.tail():
                n_accepted = yield from run.read_again(prefix, offered)
                while n_accepted == len(offered) and not run.is_done:
                    yield from run.read_on(prefix)  # nothing wrong is in the tail
            guess = resynchronised(guess, n_accepted, run.tokens[-1] if run.tokens else None)
        return run.result()

    def choose(self, hidden: torch.Tensor) -> tuple[list[int], list[float]]:
        """Return the likeliest tokens and their log probabilities."""
        return _likeliest(self.bar(self.model.logits(hidden)))

    def bar(self, logits: torch.Tensor) -> torch.Tensor:
        """Take what is never produced out of logits, in place."""
        return logits.masked_fill_(self._barred, -torch.inf)


def choose_each(reads: Sequence[ReadTail]) -> None:
    """Fill in the tokens of several streams that read together, from their hidden states."""
    groups: list[list[ReadTail]] = []
    n_rows = _MAX_LOGIT_ROWS
    for read in reads:
        n_rows += read.n_judged
        if n_rows > _MAX_LOGIT_ROWS:
            groups.append([])
            n_rows = read.n_judged
        groups[-1].append(read)
    for group in groups:
        logits = group[0].decoder.model.logits(torch.cat([read.hidden for read in group]))
        first = 0
        for read in group:
            read.decoder.bar(logits[first : first + read.n_judged])
            first += read.n_judged
        tokens, log_probabilities = _likeliest(logits)
        for read in group:
            n = read.n_judged
            read.tokens, tokens = tokens[:n], tokens[n:]
            read.log_probabilities, log_probabilities = log_probabilities[:n], log_probabilities[n:]


def _likeliest(logits: torch.Tensor) -> tuple[list[int], list[float]]:
    best = logits.max(dim=-1)
    return best.indices.tolist(), (best.values - logits.logsumexp(dim=-1)).tolist()


class _Run:
    """One continuation in progress."""

    def __init__(
        self, decoder: TailDecoder, request: TailRequest, columns: NDArray[np.int64]
    ) -> None:
        self._decoder = decoder
        self._request = request
        self._columns = columns
        self._rows: list[NDArray[np.float32]] = []
        self._log_probabilities: list[float] = []
        self._is_stopped = False
        self._is_cut = False
        self._n_passes = 0
        self.tokens: list[int] = []

    @property
    def room(self) -> int:
        """How many tokens may still come."""
        return self._request.max_tokens - len(self.tokens)

    @property
    def is_done(self) -> bool:
        return self._is_stopped or self._is_cut or self.room <= 0

    def read_again(self, prefix: Prefix, guess: list[int]) -> Work[int]:
        """Read the whole tail and a guess; return how many tokens of the guess were right."""
        request, model = self._request, self._decoder.model
        known = [*request.forced, *self.tokens]
        inputs = model.tokens([*request.after_audio, *known, *guess])
        if request.audio is not None:
            inputs = Inputs.joined((request.audio, inputs))
        self._rows = []
        n_known = len(known) + len(guess)
        read = ReadTail(
            prefix,
            inputs,
            self._decoder,
            is_first=True,
            n_judged=len(guess) + 1,
            n_rows=n_known + 1,  # the first one stands before the text
            columns=self._columns,
        )
        return (yield from self._read(read, guess))

    def read_on(self, prefix: Prefix) -> Work[None]:
        """Read the newest token."""
        inputs = self._decoder.model.tokens(self.tokens[-1:])
        read = ReadTail(
            prefix,
            inputs,
            self._decoder,
            is_first=False,
            n_judged=1,
            n_rows=1,
            columns=self._columns,
        )
        yield from self._read(read, [])

    def _read(self, read: ReadTail, guess: list[int]) -> Work[int]:
        yield read
        self._n_passes += 1
        chosen, n_rows = read.tokens, read.n_rows
        n_accepted = 0
        while n_accepted < len(guess) and chosen[n_accepted] == guess[n_accepted]:
            n_accepted += 1
        self._rows.append(read.weights[:, : n_rows - len(guess) + n_accepted])
        for token, log_probability in zip(
            chosen[: n_accepted + 1], read.log_probabilities, strict=False
        ):
            self._take(token, log_probability)
            if self.is_done:
                break
        return n_accepted

    def _take(self, token: int, log_probability: float) -> None:
        if token in self._decoder.stops:
            self._is_stopped = True
            return
        self.tokens.append(token)
        self._log_probabilities.append(log_probability)
        is_long = len(self.tokens) > self._request.n_spoken_slots
        self._is_cut = is_long and is_repeating(self.tokens)

    def result(self) -> Continuation:
        # A text that was cut has not seen its last token, so nothing says where that one ends.
        n_tokens = len(self.tokens) if self._is_stopped else max(len(self.tokens) - 1, 0)
        n_rows = len(self._request.forced) + n_tokens + 1
        return Continuation(
            tokens=self.tokens[:n_tokens],
            log_probabilities=self._log_probabilities[:n_tokens],
            attention=np.concatenate(self._rows, axis=1)[:, :n_rows],
            is_complete=self._is_stopped,
            is_looping=self._is_cut,
            n_passes=self._n_passes,
        )
