"""RTP of a telephone call: G.711, G.722, Opus over UDP, in order and in true time (RFC 3550).

Nothing is concealed: what the network lost is a gap. What is no audio of the call is left out, as
anyone may send to an open port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Finalize, Stop
from audiokv.server.telephony.codecs import PayloadTypes
from audiokv.server.telephony.quiet import QuietDialect
from audiokv.server.telephony.rtp_line import RtpLine
from audiokv.server.telephony.rtp_packet import Datagram, RtpPacket
from audiokv.server.telephony.rtp_sender import Heard
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Opening
    from audiokv.server.telephony.wishes import Wishes


class RtpDialect(QuietDialect):
    """The audio of one call that was answered; codec and sender may change within it.

    Args:
        wishes: Language, prompt, and what is known about the call.
        payload_types: The codecs agreed on; may learn more during the call.

    Attributes:
        n_ignored: Datagrams that were no audio of the call.
    """

    def __init__(self, wishes: Wishes, payload_types: PayloadTypes | None = None) -> None:
        self._wishes = wishes
        self._payload_types = payload_types or PayloadTypes()
        self._line = RtpLine()
        self._is_silent = False
        self.n_ignored = 0

    def open(self, opening: Opening) -> list[Command]:
        """Begin the stream: the call is answered. All codecs are brought to one format."""
        del opening
        return [self._wishes.begin(AudioFormat())]

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a datagram, or the end of the call, which is empty.

        What is no audio is left out: control packets, comfort noise, digits, noise.
        """
        if not message:
            return [*self._line.flush(), Stop()]
        heard = self._audio_in(message)
        if heard is None:
            self.n_ignored += 1
            return []
        self._is_silent = False
        return self._line.push(heard)

    def _audio_in(self, message: str | bytes) -> Heard | None:
        try:
            packet = RtpPacket.parse(message.encode() if isinstance(message, str) else message)
        except MessageError:
            return None
        codec = self._payload_types.codec(packet.payload_type)
        if codec is None or not codec.ticks_of(packet.payload):
            return None
        arrived_ms = message.arrived_ms if isinstance(message, Datagram) else None
        return Heard(packet, codec, arrived_ms)

    def miss(self, more_ms: int) -> list[Command]:
        """End the open caption: the silence itself is told by the time of the next packet."""
        del more_ms
        is_new = not self._is_silent
        self._is_silent = True
        return [*self._line.flush(), Finalize()] if is_new else []
