"""The latest audio of a stream, addressed by its position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000


class Tape:
    """Keeps a bounded stretch of audio up to the stream's latest sample.

    Args:
        kept_ms: How much is kept.
    """

    def __init__(self, kept_ms: int) -> None:
        self._kept = kept_ms * _SAMPLES_PER_MS
        self._samples = np.zeros(0, dtype=np.float32)
        self._start = 0

    def append(self, samples: NDArray[np.float32]) -> None:
        """Add audio of shape (n,), 16 kHz, at the end; the oldest leaves."""
        joined = np.concatenate([self._samples, samples])
        n_gone = max(0, joined.size - self._kept)
        self._samples = joined[n_gone:]
        self._start += n_gone

    @property
    def start_ms(self) -> int:
        """Position of the oldest whole millisecond kept."""
        return -(-self._start // _SAMPLES_PER_MS)

    def read(self, from_ms: int, to_ms: int) -> NDArray[np.float32]:
        """Return the audio between two positions.

        Raises:
            ValueError: It begins before what is kept.
        """
        first = from_ms * _SAMPLES_PER_MS - self._start
        if first < 0:
            raise ValueError(f"audio at {from_ms} ms has left the tape")
        return self._samples[first : to_ms * _SAMPLES_PER_MS - self._start]
