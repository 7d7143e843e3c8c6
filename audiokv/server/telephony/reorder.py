"""Packets back in the order in which they were spoken, waiting no longer than a set time."""

from __future__ import annotations

from dataclasses import dataclass

MAX_HELD = 64  # packets; more than a second of 20 ms packets
RESTART_RUN = 50  # late packets in unbroken order after which a source counts as restarted


@dataclass(frozen=True, slots=True)
class Packet:
    """A piece of audio with its place in the source's order and on the source's clock.

    Attributes:
        sequence: Number of the packet; rises by one with each packet sent, never wraps.
        start: Time of the first sample on the source's media clock, in its ticks, or None.
        payload: Encoded audio.
        codec: What it is encoded with, where that may differ from packet to packet.
    """

    sequence: int
    start: int | None
    payload: bytes
    codec: str = ""


class Unwrapper:
    """Extends a counter that wraps at a power of two to one that does not (RFC 3550, A.1).

    Args:
        bits: Width of the counter: 16 for RTP's sequence numbers, 32 for its timestamps.
    """

    def __init__(self, bits: int) -> None:
        self._modulus = 1 << bits
        self._last: int | None = None

    def extend(self, value: int) -> int:
        """Return the value nearest to the latest one that has these low bits.

        Args:
            value: The counter as it was sent.
        """
        if self._last is None:
            self._last = value
            return value
        half = self._modulus // 2
        step = (value - self._last + half) % self._modulus - half
        extended = self._last + step
        self._last = max(self._last, extended)
        return extended


class ReorderBuffer:
    """Gives packets out by rising sequence number, each once.

    There is no clock: how long a missing packet is waited for is measured by the audio that came
    after it. A source that starts over with lower numbers is followed after `RESTART_RUN` packets.

    Full policy: at `MAX_HELD` packets the missing one in front of them counts as lost.

    Args:
        max_wait: Ticks of the media clock to wait for a missing packet; 0 where the order is kept.
    """

    def __init__(self, max_wait: int) -> None:
        self._max_wait = max_wait
        self._held: dict[int, Packet] = {}
        self._next: int | None = None
        self._late_next: int | None = None
        self._n_late_run = 0
        self.n_dropped = 0

    def push(self, packet: Packet) -> list[Packet]:
        """Take a packet; return those whose turn it is, lost ones left out."""
        if self._next is None:
            self._next = packet.sequence
        if packet.sequence < self._next:
            return self._take_late(packet)
        self._n_late_run = 0
        if packet.sequence in self._held:
            self.n_dropped += 1
            return []
        self._held[packet.sequence] = packet
        return self._release()

    def flush(self) -> list[Packet]:
        """Return everything held, in order: no missing packet will come any more."""
        rest = [self._held[sequence] for sequence in sorted(self._held)]
        self._held.clear()
        if rest:
            self._next = rest[-1].sequence + 1
        return rest

    def _take_late(self, packet: Packet) -> list[Packet]:
        """Drop a duplicate or a packet whose time is over, unless the source has started over."""
        is_run = packet.sequence == self._late_next
        self._n_late_run = self._n_late_run + 1 if is_run else 1
        self._late_next = packet.sequence + 1
        if self._n_late_run < RESTART_RUN:
            self.n_dropped += 1
            return []
        rest = self.flush()
        self._n_late_run = 0
        self._next = packet.sequence + 1
        return [*rest, packet]

    def _release(self) -> list[Packet]:
        ready: list[Packet] = []
        while self._held:
            packet = self._held.pop(self._next or 0, None)
            if packet is None:
                if not self._has_waited():
                    break
                self._next = min(self._held)
                continue
            ready.append(packet)
            self._next = packet.sequence + 1
        return ready

    def _has_waited(self) -> bool:
        if not self._max_wait or len(self._held) >= MAX_HELD:
            return True
        starts = [p.start for p in self._held.values() if p.start is not None]
        return bool(starts) and max(starts) - min(starts) >= self._max_wait
