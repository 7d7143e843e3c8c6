"""Audio of which it is known who speaks when: real turns of a meeting, and joined recordings."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.recordings import SAMPLES_PER_MS, Recording, near_silence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

PAUSE_MS = 800
LONG_MS = 5_000  # longer recordings make two turns
DIGITS_IN_TURN = 6
DIGIT_GAP_MS = 75
ENGLISH: dict[str, tuple[str, ...]] = {
    "joyce": ("librispeech/1089-134686-0000.flac", "librispeech/1089-134691-0001.flac"),
    "kennedy": ("jfk.flac",),
    "austen": ("librivox/austen-0870.wav", "librivox/austen-0890.wav", "librivox/austen-0930.wav"),
    "quilter": ("multilingual/en.wav",),
}
OTHERS: dict[str, tuple[str, ...]] = {
    name: (f"multilingual/{name}.wav",) for name in ("es", "de", "fr", "ja")
}
DIGIT_SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
MEETINGS = ("dev00", "trn01", "trn09")


@dataclass(frozen=True, slots=True)
class Turn:
    """Who speaks from when to when, in ms."""

    speaker: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Audio, shape (n,), 16 kHz, and its turns; they may overlap."""

    samples: FloatArray
    turns: tuple[Turn, ...]


def read_turns(text: str, file: str) -> tuple[Turn, ...]:
    """Return the turns of one file of an RTTM listing (NIST, "The 2009 Rich Transcription")."""
    rows = [line.split() for line in text.splitlines() if line.startswith("SPEAKER")]
    return tuple(
        Turn(row[7], round(1000 * float(row[3])), round(1000 * (float(row[3]) + float(row[4]))))
        for row in rows
        if row[1] == file
    )


def meeting(folder: Path, file: str) -> Conversation:
    """Return an excerpt of a real meeting."""
    listing = "development" if file.startswith("dev") else "train"
    text = (folder / "meeting" / f"{listing}.rttm").read_text("utf-8")
    return Conversation(_sound(folder, f"meeting/{file}.wav"), read_turns(text, file))


def joined(parts: Sequence[tuple[str, FloatArray]]) -> Conversation:
    """Return recordings one after the other, with pauses of near silence."""
    sounds, turns, at_ms = [near_silence(PAUSE_MS * SAMPLES_PER_MS)], [], PAUSE_MS
    for speaker, samples in parts:
        length_ms = len(samples) // SAMPLES_PER_MS
        turns.append(Turn(speaker, at_ms, at_ms + length_ms))
        pause = near_silence(PAUSE_MS * SAMPLES_PER_MS, seed=len(turns))
        sounds += [samples[: length_ms * SAMPLES_PER_MS], pause]
        at_ms += length_ms + PAUSE_MS
    return Conversation(np.concatenate(sounds), tuple(turns))


def shuffled(folder: Path, voices: Mapping[str, Sequence[str]], seed: int) -> Conversation:
    """Return the recordings of several voices in turns of random order, long ones in two."""
    parts = []
    for speaker, files in voices.items():
        for file in files:
            samples = _sound(folder, file)
            middle = len(samples) // 2 if len(samples) > LONG_MS * SAMPLES_PER_MS else len(samples)
            parts += [(speaker, half) for half in (samples[:middle], samples[middle:]) if len(half)]
    random.Random(seed).shuffle(parts)  # noqa: S311  an order, not a secret
    return joined(parts)


def digit_turns(folder: Path, takes: Sequence[int], seed: int, n_rounds: int = 4) -> Conversation:
    """Return telephone-band digits: each of six voices says six at a time, in random order."""
    order = random.Random(seed)  # noqa: S311  an order, not a secret
    parts = []
    for speaker in DIGIT_SPEAKERS:
        files = [f"digits/{digit}_{speaker}_{take}.wav" for digit in range(10) for take in takes]
        order.shuffle(files)
        gap = near_silence(DIGIT_GAP_MS * SAMPLES_PER_MS)
        for i in range(n_rounds):
            chosen = files[i * DIGITS_IN_TURN : (i + 1) * DIGITS_IN_TURN]
            sounds = [part for file in chosen for part in (_sound(folder, file), gap)]
            parts.append((speaker, np.concatenate(sounds)))
    order.shuffle(parts)
    return joined(parts)


def _sound(folder: Path, file: str) -> FloatArray:
    return Recording(file, folder / file, "", "").samples()
