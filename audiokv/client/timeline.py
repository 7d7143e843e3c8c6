"""From the server's sample clock to the source's, across lost audio and restarted streams."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

_MAX_JUMPS = 256


class Timeline:
    """Maps positions of the server's stream to positions of the source.

    Both count samples per channel at the source's rate. They differ once a stream was restarted
    (it counts from 0 again) or audio was left out (the stream's clock did not see it pass).

    Args:
        sample_rate_hz: Rate of the source.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        self._sample_rate_hz = sample_rate_hz
        self._jumps = [(0, 0)]  # from this stream position on, the source is at that one

    def restart(self, source_sample: int) -> None:
        """Begin a new stream whose first sample is that of the source."""
        self._jumps = [(0, source_sample)]

    def jump(self, stream_sample: int, source_sample: int) -> None:
        """Note that from a position of the stream on, it carries a later part of the source."""
        self.cut_back(stream_sample)
        if self._jumps[-1][0] == stream_sample:
            self._jumps.pop()
        self._jumps.append((stream_sample, source_sample))
        del self._jumps[:-_MAX_JUMPS]

    def cut_back(self, stream_sample: int) -> None:
        """Forget jumps after a position: the server never got there."""
        while len(self._jumps) > 1 and self._jumps[-1][0] > stream_sample:
            self._jumps.pop()

    def source_sample(self, stream_sample: int) -> int:
        """Return the source's position at a position of the stream."""
        index = bisect_right(self._jumps, stream_sample, key=lambda jump: jump[0]) - 1
        stream, source = self._jumps[max(index, 0)]
        return source + stream_sample - stream

    def start_ms(self, stream_ms: int) -> int:
        """Return when on the source's clock something that begins there begins."""
        index = bisect_right(self._jumps, self._samples(stream_ms), key=lambda jump: jump[0]) - 1
        return self._shifted(stream_ms, index)

    def end_ms(self, stream_ms: int) -> int:
        """Return when on the source's clock something that ends there ends."""
        index = bisect_left(self._jumps, self._samples(stream_ms), key=lambda jump: jump[0]) - 1
        return self._shifted(stream_ms, index)

    def _samples(self, ms: int) -> int:
        return ms * self._sample_rate_hz // 1000

    def _shifted(self, stream_ms: int, index: int) -> int:
        stream, source = self._jumps[max(index, 0)]
        return stream_ms + round((source - stream) * 1000 / self._sample_rate_hz)
