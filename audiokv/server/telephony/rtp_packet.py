"""The packets of RTP, version 2 (RFC 3550, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from audiokv.streaming.errors import MessageError

_VERSION = 2
_HEADER_BYTES = 12
_EXTENSION_BYTES = 4
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One packet, its header read.

    Attributes:
        payload_type: What the payload is.
        sequence: Number of the packet, 16 bits.
        timestamp: Time of its first sample, 32 bits.
        source: Identifier of who sends (SSRC).
        payload: The payload.
    """

    payload_type: int
    sequence: int
    timestamp: int
    source: int
    payload: bytes

    @classmethod
    def parse(cls, datagram: bytes) -> RtpPacket:
        """Return the packet in a datagram.

        Raises:
            MessageError: It is none.
        """
        if len(datagram) < _HEADER_BYTES or datagram[0] >> 6 != _VERSION:
            raise _no_rtp(datagram)
        start = _HEADER_BYTES + _WORD_BYTES * (datagram[0] & 0x0F)
        if datagram[0] & 0x10:
            words = int.from_bytes(datagram[start + 2 : start + _EXTENSION_BYTES], "big")
            start += _EXTENSION_BYTES + _WORD_BYTES * words
        end = len(datagram) - (datagram[-1] if datagram[0] & 0x20 else 0)
        if start > end:
            raise _no_rtp(datagram)
        return cls(
            payload_type=datagram[1] & 0x7F,
            sequence=int.from_bytes(datagram[2:4], "big"),
            timestamp=int.from_bytes(datagram[4:8], "big"),
            source=int.from_bytes(datagram[8:12], "big"),
            payload=datagram[start:end],
        )


def _no_rtp(datagram: bytes) -> MessageError:
    return MessageError(
        "no_rtp", f"A datagram of {len(datagram)} bytes is no RTP packet.", "Send RTP, version 2."
    )


class Datagram(bytes):
    """A datagram that knows when it came.

    Attributes:
        arrived_ms: When, on the receiver's clock.
    """

    arrived_ms: float

    def __new__(cls, data: bytes, arrived_ms: float) -> Self:
        """Return the datagram with its time."""
        made = super().__new__(cls, data)
        made.arrived_ms = arrived_ms
        return made
