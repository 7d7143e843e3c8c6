"""Audio of sources that cannot be made to wait: what the server has no room for becomes a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audiokv.server.live_stream import LiveStream

PIECE_MS = 1_000  # of a gap, handed on with one message


class LiveAudio:
    """Keeps a stream's time true while its source is read at any cost.

    Full policy: above ``max_backlog_ms`` of unrecognised audio, what comes is dropped and counted;
    below half of it, the count is handed on as a gap, piece by piece, before audio again.

    Args:
        max_backlog_ms: Audio that may wait for its recognition.
    """

    def __init__(self, max_backlog_ms: int) -> None:
        self._max_backlog_ms = max_backlog_ms
        self._lost_bytes = 0

    def take(self, stream: LiveStream, audio: bytes) -> None:
        """Hand audio on to its stream, or drop it."""
        if not self._lost_bytes and stream.lag_ms <= self._max_backlog_ms:
            stream.accept(audio)
            return
        self._lost_bytes += len(audio)
        if stream.lag_ms <= self._max_backlog_ms // 2:
            self._settle(stream)

    def _settle(self, stream: LiveStream) -> None:
        per_second = stream.fmt.bytes_per_second
        gap_ms = min(PIECE_MS, self._lost_bytes * 1000 // per_second)
        if gap_ms:
            stream.lose(gap_ms)
        self._lost_bytes -= gap_ms * per_second // 1000
        if self._lost_bytes * 1000 < per_second:  # less than a millisecond cannot be a gap
            self._lost_bytes = 0
