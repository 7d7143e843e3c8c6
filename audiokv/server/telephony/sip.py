"""Calls straight from a telephone or an exchange: SIP over UDP, answered for listening only.

Signalling is that of the library aiosipua (RFC 3261, RFC 3264), an optional extra; the audio is
ours. Callers are known by their network address alone, so the port belongs behind a firewall.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

from aiosipua import SipResponse, SipUAS
from aiosipua.message import SipMessage, SipRequest
from aiosipua.sdp_negotiate import SdpNegotiationError
from aiosipua.transport import UdpSipTransport

from audiokv.server.failure_log import log_failure
from audiokv.server.telephony.codecs import PayloadTypes
from audiokv.server.telephony.mapped_address import for_family, plain
from audiokv.server.telephony.rtp import RtpDialect
from audiokv.server.telephony.rtp_wire import RtpWire
from audiokv.server.telephony.sdp_answer import answer_to
from audiokv.server.telephony.sip_calls import forget, is_awaiting_ack
from audiokv.server.telephony.wishes import Wishes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from ipaddress import IPv4Network, IPv6Network

    from aiosipua.incoming_call import IncomingCall
    from aiosipua.sdp import SdpMessage

    from audiokv.server.clock import Clock
    from audiokv.server.protocols.dialect import Dialect
    from audiokv.server.wire import Wire

logger = logging.getLogger(__name__)

USER_AGENT = "AudioKV"
NOT_ACCEPTABLE = 488
UNAVAILABLE = 503
FORBIDDEN = 403
BAD_REQUEST = 400
_ECHOED = ("Via", "From", "To", "Call-ID", "CSeq")
_MAX_NAME_CHARS = 256
MAX_PORT = 65_535


class _UdpPort(UdpSipTransport, asyncio.DatagramProtocol):
    """A UDP socket that hands on only what comes from callers who are allowed."""

    def __init__(self, address: tuple[str, int], is_allowed: Callable[[str], bool]) -> None:
        super().__init__(address)
        self._is_allowed = is_allowed
        self.socket: socket.socket | None = None

    async def start(self) -> None:
        """Open the socket.

        Raises:
            OSError: The address or the port cannot be had.
        """
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=self.local_addr)
        self._udp_transport = transport
        self.socket = transport.get_extra_info("socket")
        self.local_addr = transport.get_extra_info("sockname")[:2]

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Take a message; a stranger's INVITE is refused, anything else of strangers dropped."""
        peer = (plain(str(addr[0])), int(addr[1]))
        if self._is_allowed(peer[0]):
            self._dispatch(data, peer)
        elif data.startswith(b"INVITE "):
            self._refuse(data, peer)

    def _refuse(self, data: bytes, peer: tuple[str, int]) -> None:
        """Refuse without keeping anything of a stranger in memory."""
        try:
            request = SipMessage.parse(data)
        except Exception:  # noqa: BLE001  the library's parser, on bytes of a stranger
            return
        self.refuse(request, peer, FORBIDDEN, "Forbidden")

    def send(self, message: SipRequest | SipResponse, addr: tuple[str, int]) -> None:
        """Send to a host given in numbers, and to nothing else that a caller may have written.

        A name would be looked up, and every call would wait for that; a port that cannot be would
        close the socket.
        """
        host, port = addr
        try:
            known = for_family(host, self.socket.family if self.socket else socket.AF_UNSPEC)
        except ValueError:
            return
        if 0 < port <= MAX_PORT:
            super().send(message, (known, port))

    def refuse(self, request: SipMessage, peer: tuple[str, int], status: int, reason: str) -> None:
        """Answer a request, keeping nothing of it in memory."""
        refusal = SipResponse(status_code=status, reason_phrase=reason)
        for name in _ECHOED:
            for value in request.headers.get(name):
                refusal.headers.append(name, value)
        self.send(refusal, peer)


@dataclass(frozen=True, slots=True)
class _Answered:
    wire: RtpWire
    payload_types: PayloadTypes


class SipPort:
    """A port at which calls are answered, each with a stream of its own.

    Args:
        converse: Serves one call's audio; returns when the call is over.
        has_room: Tells whether one more call may be answered.
        allowed: Addresses and networks whose calls are answered.
        clock: The server's clock.
    """

    def __init__(
        self,
        converse: Callable[[Dialect, Wire], Awaitable[None]],
        *,
        has_room: Callable[[], bool],
        allowed: Iterable[str],
        clock: Clock,
    ) -> None:
        self._converse = converse
        self._clock = clock
        self._has_room = has_room
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(a) for a in allowed]
        self._udp: _UdpPort | None = None
        self._uas: SipUAS | None = None
        self._calls: dict[str, _Answered] = {}  # by Call-ID
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening socket."""
        return () if self._udp is None or self._udp.socket is None else (self._udp.socket,)

    async def listen(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: Address to listen on.
            port: Port to listen on; 0 takes a free one.

        Raises:
            OSError: The address or the port cannot be had.
        """
        # Below, the library would log what strangers send, and numbers of callers.
        logging.getLogger("aiosipua").setLevel(logging.CRITICAL + 1)
        self._udp = _UdpPort((host, port), self._is_allowed)
        self._uas = SipUAS(self._udp, user_agent=USER_AGENT)
        self._uas.on_invite = self._on_invite
        self._uas.on_reinvite = self._on_reinvite
        self._uas.on_bye = lambda call, _: self._end(call.call_id)
        self._uas.on_cancel = lambda request, _: self._end(request.call_id or "")
        self._uas.on_ack_timeout = lambda call: self._end(call.call_id)
        await self._uas.start()
        self._udp.on_message = partial(self._hand_on, self._udp, self._udp.on_message)

    def _hand_on(
        self,
        udp: _UdpPort,
        take: Callable[[Any, tuple[str, int]], object] | None,
        message: SipMessage,
        peer: tuple[str, int],
    ) -> None:
        """Let the library take a message; one that it cannot read is answered, not passed over."""
        if take is None or self._is_repeated(message):
            return
        try:
            take(message, peer)
        except ValueError:  # of the library's parsers: a number or a description that is none
            if isinstance(message, SipRequest) and message.method.upper() != "ACK":
                udp.refuse(message, peer, BAD_REQUEST, "Bad Request")

    def _is_repeated(self, message: object) -> bool:
        """Whether a message is an INVITE that was answered: its answer is repeated anyway."""
        if not isinstance(message, SipRequest) or message.method.upper() != "INVITE":
            return False
        call_id = message.call_id or ""
        if ";tag=" not in (message.headers.get_first("to") or "").lower():
            return call_id in self._calls
        call = self._uas.get_call(call_id) if self._uas is not None else None
        if call is None or not is_awaiting_ack(call):
            return False
        return call.invite.get_header("cseq") == message.get_header("cseq")

    def close(self) -> None:
        """Hang every call up."""
        for known in list(self._calls.values()):
            known.wire.abort()

    async def wait_closed(self) -> None:
        """Wait until no call is served any more, then stop listening."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._uas is not None:
            await self._uas.stop()

    def _is_allowed(self, host: str) -> bool:
        address = ip_address(host.partition("%")[0])
        return any(address in network for network in self._networks)

    def _on_invite(self, call: IncomingCall) -> None:
        if not self._has_room():
            call.reject(UNAVAILABLE)
            self._forget(call)
        elif call.sdp_offer is None:
            call.reject(NOT_ACCEPTABLE)
            self._forget(call)
        else:
            task = asyncio.ensure_future(self._serve(call, call.sdp_offer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, call: IncomingCall, offer: SdpMessage) -> None:
        """Answer a call and serve its audio to its end."""
        callers = {call.source_addr[0], *(offer.rtp_address or ())[:1]}
        wire = RtpWire(frozenset(callers), partial(_hang_up, call), self._clock)
        payload_types = PayloadTypes()
        self._calls[call.call_id] = _Answered(wire, payload_types)
        is_answered = False
        try:
            host = _address_towards(call.source_addr[0])
            loop = asyncio.get_running_loop()
            await loop.create_datagram_endpoint(lambda: wire, local_addr=(host, 0))
            if wire.is_over:  # cancelled meanwhile, and refused with 487
                return
            call.advertised_addr = (host, call.transport.local_addr[1] if call.transport else 0)
            call.accept(answer_to(offer, host, wire.port, payload_types))
            is_answered = True
            await self._converse(RtpDialect(Wishes(metadata=_told(call)), payload_types), wire)
        except SdpNegotiationError:
            call.reject(NOT_ACCEPTABLE)
        except Exception as error:  # noqa: BLE001  the boundary of a call
            log_failure(logger, f"call {wire.name}", error)
            if not is_answered:
                call.reject(UNAVAILABLE)
        finally:
            self._calls.pop(call.call_id, None)
            wire.abort()
            self._forget(call)

    def _on_reinvite(self, call: IncomingCall) -> None:
        """Answer a change within a call: another codec, hold, or the same again.

        A change that cannot be leaves the call as it was (RFC 3261, section 14.2); the library's
        ``reject`` would end it.
        """
        known, offer = self._calls.get(call.call_id), call.sdp_offer
        if known is None or offer is None:
            self._refuse_change(call)
            return
        host = _address_towards(call.source_addr[0])
        try:
            answer = answer_to(offer, host, known.wire.port, known.payload_types)
        except SdpNegotiationError:
            self._refuse_change(call)
            return
        known.wire.expect(*(offer.rtp_address or ())[:1])
        call.accept(answer)

    def _refuse_change(self, call: IncomingCall) -> None:
        if self._udp is not None:
            reason = "Not Acceptable Here"
            self._udp.refuse(call.invite, call.source_addr, NOT_ACCEPTABLE, reason)

    def _forget(self, call: IncomingCall) -> None:
        if self._uas is not None:
            forget(self._uas, call)

    def _end(self, call_id: str) -> None:
        known = self._calls.get(call_id)
        if known is not None:
            known.wire.end()


def _told(call: IncomingCall) -> dict[str, str]:
    told = {"source": "sip", "call": call.call_id, "from": call.caller, "to": call.callee}
    return {name: value[:_MAX_NAME_CHARS] for name, value in told.items() if value}


def _hang_up(call: IncomingCall) -> None:
    call.hangup()


def _address_towards(host: str) -> str:
    """Return this machine's own address on the way to another; sends nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
