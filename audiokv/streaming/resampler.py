"""Sample-rate conversion of a stream, exact for any chunking, on an undistorted time axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import samplerate

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

_TAIL_MS = 20  # silence fed at the end; several times the filter's half length at 8 kHz


class StreamResampler:
    """Converts the rate of one channel, keeping the filter's state between pushes.

    The filter is `sinc_fastest` of libsamplerate. It is centred on each output sample, so sample k
    of the output is the sound at ``k / to_hz``: an event stays where it was. What it costs is
    hold-back, not a shift: the newest 1.2 ms (from 24 kHz and above) to 2.5 ms (from 8 kHz, up to
    5 ms where the ratio is odd) of the input wait for their right neighbours, and come with the
    next push or with `flush`. The output is bit for bit the same however the input is cut.

    Args:
        from_hz: Rate of the input.
        to_hz: Rate of the output.
    """

    def __init__(self, from_hz: int, to_hz: int = SAMPLE_RATE_HZ) -> None:
        self._from_hz = from_hz
        self._to_hz = to_hz
        self._filter = (
            None
            if from_hz == to_hz
            else samplerate.Resampler(samplerate.ConverterType.sinc_fastest, channels=1)
        )
        self._n_in = 0
        self._n_out = 0
        self._is_flushed = False

    def push(self, samples: FloatArray) -> FloatArray:
        """Return the output that the input so far decides.

        Args:
            samples: Shape (n,), float32, at ``from_hz``; n may be 0.

        Returns:
            Shape (m,), float32, at ``to_hz``. The input itself where the rates match.

        Raises:
            ValueError: The stream was flushed.
        """
        if self._is_flushed:
            raise ValueError("The resampler was flushed; open a new one for a new stream.")
        self._n_in += len(samples)
        return self._convert(samples)

    def flush(self) -> FloatArray:
        """End the stream and return the samples held back; empty when called again.

        Afterwards exactly ``round(samples in * to_hz / from_hz)`` samples have come out in all.
        """
        self._is_flushed = True
        n_due = (2 * self._n_in * self._to_hz + self._from_hz) // (2 * self._from_hz)
        n_missing = n_due - self._n_out
        if n_missing <= 0:
            return np.zeros(0, np.float32)
        tail = self._convert(np.zeros(self._from_hz * _TAIL_MS // 1000, np.float32))
        self._n_out = n_due
        return tail[:n_missing]

    def _convert(self, samples: FloatArray) -> FloatArray:
        if self._filter is None:
            converted = samples
        elif len(samples):
            converted = self._filter.process(samples, self._to_hz / self._from_hz)
        else:
            converted = np.zeros(0, np.float32)
        self._n_out += len(converted)
        return converted
