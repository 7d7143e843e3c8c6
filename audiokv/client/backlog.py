"""Audio and requests between a source and a server that may vanish at any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.client.timeline import Timeline
from audiokv.streaming.messages import Finalize

if TYPE_CHECKING:
    from audiokv.streaming.audio_format import AudioFormat
    from audiokv.streaming.messages import Stop, Update

    Request = Finalize | Stop | Update


class Backlog:
    """Keeps what the server may still need, and hands out what is to be sent next, in order.

    Positions are samples per channel since the source began. Audio is kept until the server has
    received it *and* its words are committed (or it is ``keep_ms`` old): a server that forgot the
    stream then gets it again. Requests keep their place between the audio before and after them.

    Args:
        audio_format: Format of the audio.
        keep_ms: Received audio kept at most for a server that forgets the stream.
    """

    def __init__(self, audio_format: AudioFormat, keep_ms: int = 30_000) -> None:
        self.timeline = Timeline(audio_format.sample_rate_hz)
        self._frame_bytes = audio_format.frame_bytes
        self._sample_rate_hz = audio_format.sample_rate_hz
        self._keep_samples = self.samples(keep_ms)
        self._audio = bytearray()  # from _base on; may end amid a frame
        self._base = 0
        self._sent = 0
        self._acknowledged = 0
        self._committed = 0
        self._stream_sent = 0  # as the server counts
        self._stream_received = 0
        self._requests: list[tuple[int, Request]] = []
        self._n_requests_sent = 0

    def samples(self, ms: int) -> int:
        """Return how many samples per channel a time takes."""
        return ms * self._sample_rate_hz // 1000

    def ms(self, samples: int) -> int:
        """Return the time so many samples per channel take."""
        return samples * 1000 // self._sample_rate_hz

    @property
    def end(self) -> int:
        """Position after the last whole sample."""
        return self._base + len(self._audio) // self._frame_bytes

    @property
    def acknowledged(self) -> int:
        """Position up to which the server has received everything."""
        return self._acknowledged

    @property
    def unacknowledged_ms(self) -> int:
        """Audio the server has not confirmed."""
        return self.ms(self.end - self._acknowledged)

    def append(self, audio: bytes) -> None:
        """Add audio; it may be split anywhere, even amid a sample."""
        self._audio += audio

    def request(self, message: Request) -> None:
        """Add a request after the audio so far."""
        self._requests.append((self.end, message))

    def take(self, max_bytes: int, max_ahead_ms: int) -> bytes | Request | None:
        """Return what to send next, or None when nothing may be sent now.

        Args:
            max_bytes: Longest piece of audio.
            max_ahead_ms: Audio that may be on its way unconfirmed.
        """
        if self._sent < self._base:
            return self._leap()
        if self._n_requests_sent < len(self._requests):
            position, message = self._requests[self._n_requests_sent]
            if position <= self._sent:
                self._n_requests_sent += 1
                return message
        else:
            position = self.end
        allowed = self._stream_received + self.samples(max_ahead_ms) - self._stream_sent
        n_samples = min(position - self._sent, allowed, max_bytes // self._frame_bytes)
        if n_samples <= 0:
            return None
        first = (self._sent - self._base) * self._frame_bytes
        piece = bytes(self._audio[first : first + n_samples * self._frame_bytes])
        self._sent += n_samples
        self._stream_sent += n_samples
        return piece

    def _leap(self) -> Request:
        """Go on after dropped audio; what was said before it is a segment of its own."""
        self.timeline.jump(self._stream_sent, self._base)
        self._sent = self._base
        return Finalize()

    def acknowledge(self, stream_received: int) -> None:
        """Take note that the server has so many samples of its stream."""
        if stream_received <= self._stream_received:
            return
        self._stream_received = min(stream_received, self._stream_sent)
        position = min(self.timeline.source_sample(self._stream_received), self._sent)
        self._acknowledged = max(self._acknowledged, position)
        n_done = sum(at < self._acknowledged for at, _ in self._requests[: self._n_requests_sent])
        del self._requests[:n_done]
        self._n_requests_sent -= n_done
        self._forget()

    def commit(self, source_ms: int) -> None:
        """Take note that all words up to a time of the source are committed."""
        self._committed = max(self._committed, self.samples(source_ms))
        self._forget()

    def _forget(self) -> None:
        kept_from = max(self._committed, self._acknowledged - self._keep_samples)
        self._drop_before(min(kept_from, self._acknowledged))

    def _drop_before(self, position: int) -> None:
        n_samples = min(position, self.end) - self._base
        if n_samples > 0:
            del self._audio[: n_samples * self._frame_bytes]
            self._base += n_samples

    def drop_oldest(self, keep_ms: int) -> int:
        """Drop unconfirmed audio but for the latest; return how many ms went."""
        before = max(self._base, self._acknowledged)
        self._drop_before(self.end - self.samples(keep_ms))
        return self.ms(max(0, self._base - before))

    def resume(self, stream_received: int) -> None:
        """Go on with the same stream from what the server holds of it."""
        self.timeline.cut_back(stream_received)
        stream_received -= max(0, self.timeline.source_sample(stream_received) - self.end)
        self._stream_sent = self._stream_received = stream_received
        self._sent = self.timeline.source_sample(stream_received)
        self._acknowledged = max(self._acknowledged, self._sent)
        self._requests = [(at, message) for at, message in self._requests if at >= self._sent]
        self._n_requests_sent = 0
        self._forget()

    def restart(self) -> int:
        """Go on with a new stream after the last committed word; return its first position."""
        self._sent = max(self._base, min(self._committed, self._sent))
        self._stream_sent = self._stream_received = 0
        self._acknowledged = self._sent
        self._n_requests_sent = 0
        self._requests = [(at, message) for at, message in self._requests if at >= self._sent]
        self.timeline.restart(self._sent)
        return self._sent
