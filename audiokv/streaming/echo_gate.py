"""The echo of one side of a call in what the other side sends, muted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

ECHO_MS = 300  # the way there and back, over a mobile network too
ECHO_LOSS = 0.08  # 22 dB: a louder echo is hardly ever left by a network's own cancellers
HOLD_MS = 400  # a voice louder than an echo is let through for so long: its weak syllables
MIN_LEVEL = 0.003  # -50 dBFS; what is softer is no voice, and leaves no echo


class EchoGate:
    """Mutes frames of a channel in which it only gives back what another one said just before.

    Where both sides talk, the louder one is untouched, and the other one as long as it is less than
    22 dB softer. A side that is silent loses nothing that could be speech.

    Args:
        n_channels: How many.
    """

    def __init__(self, n_channels: int) -> None:
        n_frames = ECHO_MS // FRAME_MS + 1
        self._levels: list[deque[float]] = [deque(maxlen=n_frames) for _ in range(n_channels)]
        self._n_held = [0] * n_channels  # frames for which a channel is still let through

    def push(self, channels: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the frames of each channel, those that are nothing but echo as zeros.

        Args:
            channels: Whole 10 ms frames of each, shape (n * 160,), 16 kHz; n is the same for all.
        """
        frames = [samples.reshape(-1, FRAME_SAMPLES).copy() for samples in channels]
        levels = np.array([np.sqrt(np.square(rows).mean(axis=1)) for rows in frames])
        for at in range(levels.shape[1]):
            for past, level in zip(self._levels, levels[:, at], strict=True):
                past.append(float(level))
            loudest = [max(past) for past in self._levels]
            for channel, rows in enumerate(frames):
                others = max(loudest[:channel] + loudest[channel + 1 :], default=0.0)
                if self._is_echo(channel, others):
                    rows[at] = 0.0
        return [rows.reshape(-1) for rows in frames]

    def _is_echo(self, channel: int, others: float) -> bool:
        """Whether the newest frame of a channel is no more than what others left in it."""
        own = self._levels[channel][-1]
        if own >= ECHO_LOSS * others:
            self._n_held[channel] = HOLD_MS // FRAME_MS if own >= MIN_LEVEL else 0
            return False
        is_held = self._n_held[channel] > 0
        self._n_held[channel] = max(0, self._n_held[channel] - 1)
        return others >= MIN_LEVEL and not is_held
