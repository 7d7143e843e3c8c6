"""Digit error of a checkpoint on pasted strings, read greedily through transformers' own cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import DynamicCache

from tools.digits_data import Conditions, DigitBank, SpokenString, string_of
from tools.digits_mel import LogMel, samples_for
from tools.digits_model import AUDIO_TOKEN, BOA, BOS, DIGIT_0, EOA, EOS, DigitsModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

_SLOT_SAMPLES = 2560
_MAX_WORDS = 64


@dataclass(frozen=True)
class ErrorRate:
    """Wrong, missing and extra digits over spoken digits."""

    n_errors: int
    n_digits: int

    @property
    def percent(self) -> float:
        """The rate in per cent."""
        return 100.0 * self.n_errors / self.n_digits


def test_strings(
    seed: int, bank: DigitBank, lengths: Sequence[int], conditions: Conditions
) -> list[SpokenString]:
    """Return one string of each length; the same for the same seed."""
    return [
        string_of(np.random.default_rng([seed, 4, at]), bank, n_digits, conditions)
        for at, n_digits in enumerate(lengths)
    ]


def whole_slots(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the samples with silence after them, up to whole slots, one more than they fill."""
    n_slots = -(-len(samples) // _SLOT_SAMPLES) + 1
    return np.pad(samples, (0, samples_for(n_slots) - len(samples)))


@torch.no_grad()
def transcribe(model: DigitsModel, mel: Tensor) -> list[int]:
    """Return the digits the model reads out of mel frames, shape (frames, bins), greedily."""
    slots = model.hear(mel[None])
    cache = DynamicCache(config=model.config.text_config)
    head = torch.tensor([[BOS, BOA]])
    placeholders = torch.full((1, slots.shape[1]), AUDIO_TOKEN)
    end = torch.tensor([[EOA]])
    ids = torch.cat([head, placeholders, end], dim=1)
    embeddings = torch.cat([model.embed(head), slots, model.embed(end)], dim=1)
    digits: list[int] = []
    while len(digits) < _MAX_WORDS:
        logits = model.logits(ids, embeddings, cache=cache, use_cache=True)
        token = int(logits[0, -1].argmax())
        if token == EOS:
            break
        digits.append(token - DIGIT_0)
        ids = torch.tensor([[token]])
        embeddings = model.embed(ids)
    return digits


def error_rate(model: DigitsModel, mel: LogMel, strings: Sequence[SpokenString]) -> ErrorRate:
    """Return the error over strings of any lengths."""
    n_errors = sum(
        distance(transcribe(model, mel(whole_slots(one.samples)[None])[0]), one.digits)
        for one in strings
    )
    return ErrorRate(n_errors, sum(len(one.digits) for one in strings))


def distance(said: Sequence[int], heard: Sequence[int]) -> int:
    """Return the Levenshtein distance of two strings."""
    row = list(range(len(heard) + 1))
    for at, one in enumerate(said, start=1):
        diagonal, row[0] = row[0], at
        for to, other in enumerate(heard, start=1):
            best = min(row[to] + 1, row[to - 1] + 1, diagonal + (one != other))
            diagonal, row[to] = row[to], best
    return row[-1]
