"""Which frames are loud enough to be speech, where no voice detector's word is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_SAMPLES

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Mask
    from audiokv.streaming.policy.spectrum import Samples

RANGE_DB = 30.0  # speech between its loudest vowels and its quietest consonants
FLOOR_POWER = 1e-6  # -60 dB of full scale: a quiet room
DECAY_PER_FRAME = 0.5 ** (1 / 500)  # 3 dB in five seconds


class LoudnessGate:
    """Takes a frame for voice when it lies within 30 dB of the loudest heard lately. Causal.

    Only marks slots for the policy; what is recognised is decided by the voice detector.
    """

    def __init__(self) -> None:
        self._peak_power = FLOOR_POWER

    def push(self, samples: Samples) -> Mask:
        """Say of the next frames whether they are loud.

        Args:
            samples: Whole frames, shape (n * 160,), 16 kHz mono.

        Returns:
            Shape (n,); the same for any chunking.
        """
        frames = samples.reshape(-1, FRAME_SAMPLES)
        powers = np.einsum("fs,fs->f", frames, frames, dtype=np.float64) / FRAME_SAMPLES
        return np.array([self._is_loud(power) for power in powers.tolist()], np.bool_)

    def _is_loud(self, power: float) -> bool:
        self._peak_power = max(power, FLOOR_POWER, self._peak_power * DECAY_PER_FRAME)
        return power >= FLOOR_POWER and power >= self._peak_power * 10 ** (-RANGE_DB / 10)
