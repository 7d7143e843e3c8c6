"""What a stream has said so far, kept for those who missed it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentCaption:
    """A caption as it went over the wire.

    Attributes:
        seq: Number of the caption.
        segment: Number of its segment.
        is_final: Whether it closed its segment.
        packed: The encoded message.
    """

    seq: int
    segment: int
    is_final: bool
    packed: bytes


class ReplayBuffer:
    """Bounded memory of captions: the latest of every kind, and older finals.

    Full policy: partials older than the latest ``max_recent`` captions go, then the oldest finals
    once all finals together exceed ``max_finals_bytes``. What went is counted in ``n_forgotten``.

    Args:
        max_recent: Captions kept whether final or not.
        max_finals_bytes: Encoded size of the finals kept beyond those.
    """

    def __init__(self, max_recent: int = 2_048, max_finals_bytes: int = 8_000_000) -> None:
        self._max_recent = max_recent
        self._max_finals_bytes = max_finals_bytes
        self._recent: deque[SentCaption] = deque()
        self._finals: deque[SentCaption] = deque()
        self._finals_bytes = 0
        self.n_forgotten = 0

    @property
    def last_seq(self) -> int:
        """Number of the latest caption, 0 before the first."""
        return self._recent[-1].seq if self._recent else 0

    def add(self, caption: SentCaption) -> None:
        """Keep a caption; numbers must rise."""
        self._recent.append(caption)
        if len(self._recent) <= self._max_recent:
            return
        oldest = self._recent.popleft()
        if not oldest.is_final:
            self.n_forgotten += 1
            return
        self._finals.append(oldest)
        self._finals_bytes += len(oldest.packed)
        while self._finals_bytes > self._max_finals_bytes:
            self._finals_bytes -= len(self._finals.popleft().packed)
            self.n_forgotten += 1

    def after(self, seq: int) -> list[bytes]:
        """Return every caption kept whose number is greater, in order."""
        return [c.packed for kept in (self._finals, self._recent) for c in kept if c.seq > seq]

    def for_newcomer(self) -> list[bytes]:
        """Return the finals kept and the latest partial of each open segment, in order.

        More than one is open where the channels of a call are captioned apart.
        """
        latest = {caption.segment: caption.seq for caption in self._recent}
        recent = [c for c in self._recent if c.is_final or latest[c.segment] == c.seq]
        return [c.packed for kept in (self._finals, recent) for c in kept]
