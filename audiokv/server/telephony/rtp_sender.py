"""One sender of RTP packets: which packets are its own, in which order, at which media time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.server.telephony.media_timeline import MAX_GAP_MS, MediaTimeline
from audiokv.server.telephony.reorder import Packet, ReorderBuffer, Unwrapper

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.telephony.codecs import Codec
    from audiokv.server.telephony.rtp_packet import RtpPacket

MAX_WAIT_MS = 80  # for a packet that others have overtaken
_SEQUENCE_BITS, _TIME_BITS = 16, 32
_MAX_BACK_MS = 1_000  # a packet from longer ago is of a clock that was set anew


@dataclass(frozen=True, slots=True)
class Heard:
    """A packet as it came.

    Attributes:
        packet: The packet.
        codec: Codec of its payload.
        arrived_ms: When it came, on the receiver's clock; None where nobody knows.
    """

    packet: RtpPacket
    codec: Codec
    arrived_ms: float | None

    @property
    def duration_ms(self) -> float:
        """Length of its audio."""
        return self.codec.ticks_of(self.packet.payload) * 1000 / self.codec.clock_hz


class RtpSender:
    """Follows one sender on one clock.

    Args:
        first: A packet of it; its media time is 0.
    """

    def __init__(self, first: Heard) -> None:
        self._source = first.packet.source
        self._clock_hz = first.codec.clock_hz
        self._sequences = Unwrapper(_SEQUENCE_BITS)
        self._times = Unwrapper(_TIME_BITS)
        self._origin = self._latest = self._times.extend(first.packet.timestamp)
        self._buffer = ReorderBuffer(MAX_WAIT_MS * self._clock_hz // 1000)
        self._timeline = MediaTimeline(self._clock_hz)

    def has_sent(self, heard: Heard, max_ahead_ms: int = MAX_GAP_MS) -> bool:
        """Whether a packet is this sender's, by the clock it had so far.

        Args:
            heard: The packet.
            max_ahead_ms: How much later than its latest one it may be.
        """
        if (heard.packet.source, heard.codec.clock_hz) != (self._source, self._clock_hz):
            return False
        half = 1 << (_TIME_BITS - 1)
        ahead = (heard.packet.timestamp - self._latest + half) % (2 * half) - half
        return -_MAX_BACK_MS <= ahead * 1000 // self._clock_hz <= max_ahead_ms

    def media_ms(self, heard: Heard) -> float:
        """Return the media time of one of its packets."""
        time = self._times.extend(heard.packet.timestamp)
        self._latest = max(self._latest, time)
        return (time - self._origin) * 1000 / self._clock_hz

    def push(self, heard: Heard) -> list[Packet]:
        """Take a packet of it; return those whose turn it is, in order."""
        packet = heard.packet
        sequence = self._sequences.extend(packet.sequence)
        time = self._times.extend(packet.timestamp)
        return self._buffer.push(Packet(sequence, time, packet.payload, heard.codec.name))

    def flush(self) -> list[Packet]:
        """Return everything that waits for a packet overtaken, in order."""
        return self._buffer.flush()

    def missing_ms(self, packet: Packet, n_ticks: int) -> int:
        """Return what is missing before a packet; once for each, in order.

        Args:
            packet: The packet.
            n_ticks: Its length.
        """
        return self._timeline.place(packet.start, n_ticks)


def in_order(packets: Iterable[Heard]) -> list[Heard]:
    """Return packets of one sender by number, none twice; the numbers may wrap in between."""
    numbers = Unwrapper(_SEQUENCE_BITS)
    numbered = {numbers.extend(heard.packet.sequence): heard for heard in packets}
    return [numbered[number] for number in sorted(numbered)]
