"""A recogniser that keeps what it hears, to be compared with what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.server.doubles import ScriptedRecognizer, ScriptedStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.models.base import FloatArray, StreamOptions

_RATE_HZ = 16_000


class RecordingStream(ScriptedStream):
    """A scripted stream that notes its audio."""

    def __init__(self, options: StreamOptions) -> None:
        super().__init__(options)
        self.heard: list[FloatArray] = []

    def append(self, samples: FloatArray, speaker: str | None = None) -> None:
        self.heard.append(samples)
        super().append(samples, speaker)


class RecordingRecognizer(ScriptedRecognizer):
    """Keeps the voiced audio of each stream that opens."""

    def __init__(self) -> None:
        super().__init__()
        self.recordings: list[list[FloatArray]] = []

    def open_stream(self, options: StreamOptions) -> ScriptedStream:
        stream = RecordingStream(options)
        self.recordings.append(stream.heard)
        return stream

    def likeness(self, number: int, said: NDArray[np.int16], rate_hz: int) -> float:
        """Return how like a recording is to what was said: 1 is the same, whatever the delay.

        Args:
            number: Of the stream, in the order of opening.
            said: Samples.
            rate_hz: Their rate.
        """
        heard = np.concatenate(self.recordings[number] or [np.zeros(1, np.float32)])
        times = np.arange(len(said) * _RATE_HZ // rate_hz) * rate_hz / _RATE_HZ
        spoken = np.interp(times, np.arange(len(said)), said / 32_768)
        size = 1 << (len(heard) + len(spoken)).bit_length()
        product = np.fft.irfft(np.fft.rfft(heard, size) * np.fft.rfft(spoken, size).conj())
        energy = float(np.linalg.norm(heard) * np.linalg.norm(spoken))
        return float(np.abs(product).max()) / energy if energy else 0.0
