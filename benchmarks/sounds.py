"""Sounds without a word in them, generated: what a recogniser must stay silent through."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

_SEED = 7
_CHORDS_HZ = (  # C, A minor, F, G: their notes, bass first
    (130.8, 261.6, 329.6, 392.0, 523.3),
    (110.0, 220.0, 261.6, 329.6, 440.0),
    (87.3, 174.6, 220.0, 261.6, 349.2),
    (98.0, 196.0, 246.9, 293.7, 392.0),
)
_HARMONICS = (1.0, 0.5, 0.28, 0.16, 0.09)
_BEAT_S = 0.5
_BEATS_A_CHORD = 4


def digital_silence(n_samples: int) -> FloatArray:
    """Return zeros."""
    return np.zeros(n_samples, np.float32)


def white_noise(n_samples: int, level_dbfs: float) -> FloatArray:
    """Return white noise of an RMS level in dB below full scale."""
    chance = np.random.default_rng(_SEED)
    return (chance.standard_normal(n_samples) * 10 ** (level_dbfs / 20)).astype(np.float32)


def hold_tone(n_samples: int) -> FloatArray:
    """Return a telephone's hold pattern: two short 425 Hz beeps, then a pause, every 5 s."""
    at_s = np.arange(n_samples) / SAMPLE_RATE_HZ
    in_pattern_s = at_s % 5.0
    is_on = (in_pattern_s < 0.4) | ((in_pattern_s >= 0.6) & (in_pattern_s < 1.0))  # noqa: PLR2004
    return (0.25 * np.sin(2 * np.pi * 425.0 * at_s) * is_on).astype(np.float32)


def ringing_tone(n_samples: int) -> FloatArray:
    """Return a ringing tone: 440 and 480 Hz together, 2 s on and 4 s off."""
    at_s = np.arange(n_samples) / SAMPLE_RATE_HZ
    both = np.sin(2 * np.pi * 440.0 * at_s) + np.sin(2 * np.pi * 480.0 * at_s)
    return (0.15 * both * (at_s % 6.0 < 2.0)).astype(np.float32)  # noqa: PLR2004


def music(n_samples: int) -> FloatArray:
    """Return a music-like signal: plucked chords and an improvised melody over a drum beat."""
    chance = np.random.default_rng(_SEED)
    mix = np.zeros(n_samples, np.float32)
    n_beat = int(_BEAT_S * SAMPLE_RATE_HZ)
    for beat, first in enumerate(range(0, n_samples, n_beat)):
        chord = _CHORDS_HZ[beat // _BEATS_A_CHORD % len(_CHORDS_HZ)]
        if beat % _BEATS_A_CHORD == 0:
            for note_hz in chord:
                _add(mix, first, 0.07 * _pluck(note_hz, 2.2))
        if chance.random() < 0.8:  # noqa: PLR2004  the melody rests now and then
            _add(mix, first, 0.12 * _pluck(2 * float(chance.choice(chord[1:])), 0.9))
        _add(mix, first, (0.25 if beat % 2 else 0.12) * _drum(chance))
    return np.clip(mix, -1.0, 1.0)


def _pluck(note_hz: float, decay_s: float) -> FloatArray:
    """Return a tone with harmonics, slight vibrato and a decay."""
    at_s = np.arange(int(decay_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    phase = 2 * np.pi * note_hz * at_s + 0.3 * np.sin(2 * np.pi * 5.5 * at_s)
    tone = sum(weight * np.sin((i + 1) * phase) for i, weight in enumerate(_HARMONICS))
    envelope = np.minimum(1.0, at_s / 0.01) * np.exp(-4.0 * at_s / decay_s)
    return np.asarray(tone * envelope, dtype=np.float32)


def _drum(chance: np.random.Generator) -> FloatArray:
    """Return a short burst of noise."""
    n_samples = SAMPLE_RATE_HZ // 8
    decay = np.exp(-np.arange(n_samples) / (0.02 * SAMPLE_RATE_HZ))
    return (chance.standard_normal(n_samples) * 0.4 * decay).astype(np.float32)


def _add(mix: FloatArray, first: int, sound: FloatArray) -> None:
    part = mix[first : first + sound.size]
    part += sound[: part.size]


SOUNDS: dict[str, Callable[[int], FloatArray]] = {
    "digital silence": digital_silence,
    **{
        f"white noise, {level_dbfs} dBFS": partial(white_noise, level_dbfs=level_dbfs)
        for level_dbfs in (-60, -40, -26, -12)
    },
    "hold tone": hold_tone,
    "ringing tone": ringing_tone,
    "music-like": music,
}
