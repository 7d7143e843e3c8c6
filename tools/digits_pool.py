"""Half-minute strings made once: their mel frames, and when each digit was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from tools.digits_data import Conditions, DigitBank, fill
from tools.digits_mel import FRAMES_PER_SLOT, LogMel, normalised_extractor, samples_for

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from transformers import Gemma3nAudioFeatureExtractor

POOL_SLOTS = 188  # 30 s, what the real model hears at once
FRAME_MS = 10.0
LOOK_AHEAD_MS = 92.0  # how far past its own start a slot hears
_N_FOR_NORMALISATION = 16


@dataclass(frozen=True)
class Spoken:
    """The digits of one string of the pool; times in ms from its start."""

    digits: tuple[int, ...]
    start_ms: tuple[float, ...]
    end_ms: tuple[float, ...]


@dataclass(frozen=True)
class MelPool:
    """Strings to cut training windows from.

    Attributes:
        mel: Shape (strings, frames, bins), float16, normalised.
        spoken: What is said in each string.
    """

    mel: Tensor
    spoken: list[Spoken]


@dataclass(frozen=True)
class Window:
    """A piece of a string with the digits that can be heard in it.

    Attributes:
        mel: Shape (frames, bins), float32.
        digits: Digits heard for the greater part.
        start_ms: Their starts, from the start of the window; may be slightly negative.
        end_ms: Their ends; may lie slightly past the window.
    """

    mel: Tensor
    digits: tuple[int, ...]
    start_ms: tuple[float, ...]
    end_ms: tuple[float, ...]


def make_extractor(seed: int, bank: DigitBank) -> Gemma3nAudioFeatureExtractor:
    """Return the front end normalised over a few strings of a bank."""
    rng = np.random.default_rng([seed, 0])
    strings = [fill(rng, bank, samples_for(50), Conditions()) for _ in range(_N_FOR_NORMALISATION)]
    return normalised_extractor(np.stack([one.samples for one in strings]))


def make_pool(seed: int, bank: DigitBank, mel: LogMel, n_strings: int, path: Path) -> MelPool:
    """Return the pool of a seed, made once and kept in a file."""
    if path.exists():
        frames, spoken = torch.load(path, weights_only=True)
        return MelPool(frames, [Spoken(*one) for one in spoken])
    made, said = [], []
    for at in range(n_strings):
        rng = np.random.default_rng([seed, 1, at])
        string = fill(rng, bank, samples_for(POOL_SLOTS), Conditions())
        made.append(mel(string.samples[None])[0].half())
        said.append(Spoken(string.digits, string.start_ms, string.end_ms))
    pool = MelPool(torch.stack(made), said)
    torch.save((pool.mel, [(one.digits, one.start_ms, one.end_ms) for one in said]), path)
    return pool


def cut_window(rng: np.random.Generator, pool: MelPool, n_slots: int) -> Window:
    """Return a window of ``n_slots`` slots from anywhere; one in four from a string's start."""
    at = int(rng.integers(len(pool.spoken)))
    n_frames = n_slots * FRAMES_PER_SLOT
    latest = pool.mel.shape[1] - n_frames
    first = 0 if rng.random() < 0.25 else int(rng.integers(latest + 1))  # noqa: PLR2004
    begin_ms, end_ms = first * FRAME_MS, (first + n_frames) * FRAME_MS
    said = pool.spoken[at]
    heard = [
        (digit, start - begin_ms, end - begin_ms)
        for digit, start, end in zip(said.digits, said.start_ms, said.end_ms, strict=True)
        if start + 0.3 * (end - start) >= begin_ms and start + 0.8 * (end - start) <= end_ms
    ]
    digits, starts, ends = zip(*heard, strict=True) if heard else ((), (), ())
    mel = pool.mel[at, first : first + n_frames].float()
    return Window(mel, digits, starts, ends)


def sounding(window: Window, n_slots: int, silence: int) -> Tensor:
    """Return which digit sounds in the last 160 ms that each slot hears, shape (slots,)."""
    slot_ms = FRAMES_PER_SLOT * FRAME_MS
    labels = torch.full((n_slots,), silence)
    for digit, start, end in zip(window.digits, window.start_ms, window.end_ms, strict=True):
        middle = (start + end) / 2.0
        first = round((middle - LOOK_AHEAD_MS) / slot_ms)
        last = round((end - LOOK_AHEAD_MS) / slot_ms)
        labels[max(0, first) : max(0, last + 1)] = digit
    return labels
