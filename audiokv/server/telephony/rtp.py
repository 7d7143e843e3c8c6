"""RTP of a telephone call: G.711 over UDP, in order and in true time (RFC 3550, RFC 3551).

Nothing is concealed: what the network lost is a gap. What is no audio of the call is left out, as
anyone may send to an open port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Audio, Finalize, Gap, Stop
from audiokv.server.telephony.media_timeline import MediaTimeline
from audiokv.server.telephony.quiet import QuietDialect
from audiokv.server.telephony.reorder import Packet, ReorderBuffer, Unwrapper
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from audiokv.streaming.g711 import decode_alaw, decode_mulaw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.protocols.dialect import Command, Opening
    from audiokv.server.telephony.wishes import Wishes

CLOCK_HZ = 8_000
MAX_WAIT_MS = 80  # for a packet that others have overtaken
DECODERS = {0: decode_mulaw, 8: decode_alaw}  # by static payload type
_VERSION = 2
_HEADER_BYTES = 12
_EXTENSION_BYTES = 4
_WORD_BYTES = 4
_BYTES_PER_TICK = 2  # of the linear audio handed on
_SEQUENCE_BITS, _TIME_BITS = 16, 32


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


class _Source:
    """What is known about one sender: its order and its clock."""

    def __init__(self, source: int) -> None:
        self.source = source
        self._sequences = Unwrapper(_SEQUENCE_BITS)
        self._times = Unwrapper(_TIME_BITS)
        self._buffer = ReorderBuffer(MAX_WAIT_MS * CLOCK_HZ // 1000)

    def push(self, packet: RtpPacket, audio: bytes) -> list[Packet]:
        sequence = self._sequences.extend(packet.sequence)
        return self._buffer.push(Packet(sequence, self._times.extend(packet.timestamp), audio))

    def flush(self) -> list[Packet]:
        return self._buffer.flush()


class RtpDialect(QuietDialect):
    """The audio of one call that was answered; the codec may change within it.

    Args:
        wishes: Language, prompt, and what is known about the call.
    """

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._sender: _Source | None = None
        self._timeline = MediaTimeline(CLOCK_HZ)
        self._is_silent = False
        self.n_ignored = 0

    def open(self, opening: Opening) -> list[Command]:
        """Begin the stream: the call is answered."""
        del opening
        return [self._wishes.begin(AudioFormat(sample_rate_hz=CLOCK_HZ))]

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a datagram, or the end of the call, which is empty.

        What is no audio is left out: control packets, digits, noise.
        """
        if not message:
            rest = self._placed(self._sender.flush()) if self._sender is not None else []
            return [*rest, Stop()]
        try:
            packet = RtpPacket.parse(message.encode() if isinstance(message, str) else message)
        except MessageError:
            self.n_ignored += 1
            return []
        decode = DECODERS.get(packet.payload_type)
        if decode is None or not packet.payload:
            self.n_ignored += 1
            return []
        self._is_silent = False
        before: list[Command] = []
        if self._sender is None or self._sender.source != packet.source:
            before = self._replace(packet.source)
        return [*before, *self._placed(self._sender_of(packet, decode(packet.payload).tobytes()))]

    def _sender_of(self, packet: RtpPacket, audio: bytes) -> list[Packet]:
        return [] if self._sender is None else self._sender.push(packet, audio)

    def _replace(self, source: int) -> list[Command]:
        """Follow another sender, whose clock says nothing about that of the one before."""
        rest = self._placed(self._sender.flush()) if self._sender is not None else []
        self._sender = _Source(source)
        self._timeline = MediaTimeline(CLOCK_HZ)
        return rest

    def _placed(self, packets: Iterable[Packet]) -> list[Command]:
        placed: list[Command] = []
        for packet in packets:
            gap_ms = self._timeline.place(packet.start, len(packet.payload) // _BYTES_PER_TICK)
            placed.extend([Gap(gap_ms)] if gap_ms else [])
            placed.append(Audio(packet.payload))
        return placed

    def miss(self, more_ms: int) -> list[Command]:
        """End the open caption: the silence itself is told by the time of the next packet."""
        del more_ms
        is_new = not self._is_silent
        self._is_silent = True
        rest = self._placed(self._sender.flush()) if is_new and self._sender is not None else []
        return [*rest, Finalize()] if is_new else []
