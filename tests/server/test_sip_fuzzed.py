"""20,000 datagrams for the port at which calls come in: none harms it, and none is its last."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from audiokv.server.clock import LoopClock
from audiokv.server.protocols.dialect import Opening
from audiokv.server.telephony.sip import SipPort
from tests.server.attacked import as_bytes
from tests.server.mutations import Mutator, attack
from tests.server.running import running_server
from tests.server.telephony.sip_caller import SipCaller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audiokv.server.protocols.dialect import Dialect
    from audiokv.server.wire import Wire

PATIENCE_S = 30  # a limit for a port that hangs, never a wait
MAX_DATAGRAM_BYTES = 4_000
AT_A_TIME = 8  # datagrams that a socket can hold before it is read
ANSWERED_OF = 25  # of so many calls one is answered, the others find no room
_SDP = "\r\n".join(
    (
        *("v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "c=IN IP4 127.0.0.1", "t=0 0"),
        *("m=audio 9 RTP/AVP 0 8 9 111 101", "a=rtpmap:0 PCMU/8000", "a=rtpmap:9 G722/8000"),
        *("a=rtpmap:111 opus/48000/2", "a=fmtp:111 useinbandfec=1"),
        *("a=rtpmap:101 telephone-event/8000", "a=ptime:20", "a=sendrecv", ""),
    )
)


def request(method: str, port: int, body: str = "", *, to_tag: str = "", extra: str = "") -> bytes:
    """Return a request of one call, answered to a port."""
    lines = (
        f"{method} sip:captions@127.0.0.1 SIP/2.0",
        f"Via: SIP/2.0/UDP 127.0.0.1:{port};branch=z9hG4bK{method};rport",
        f"From: <sip:alice@127.0.0.1:{port}>;tag=a1",
        f"To: <sip:captions@127.0.0.1>{to_tag}",
        *("Call-ID: fuzz", f"CSeq: 1 {method}", f"Contact: <sip:alice@127.0.0.1:{port}>"),
        *(["Content-Type: application/sdp"] if body else []),
        f"Content-Length: {len(body)}{extra}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def seeds(port: int) -> tuple[bytes, ...]:
    """Return what telephones send."""
    return (
        *(request("INVITE", port, _SDP), request("INVITE", port, _SDP, to_tag=";tag=b")),
        *(request("INVITE", port), request("UPDATE", port, _SDP, to_tag=";tag=b")),
        *(request(method, port, to_tag=";tag=b") for method in ("ACK", "BYE", "CANCEL", "PRACK")),
        request("REFER", port, to_tag=";tag=b", extra="\r\nRefer-To: <sip:bob@127.0.0.1>"),
        *(request("OPTIONS", port), request("REGISTER", port), request("MESSAGE", port, "hello")),
        b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1\r\nCSeq: 1 BYE\r\nCall-ID: fuzz\r\n\r\n",
        b"\r\n\r\n",
    )


class Attacker(asyncio.DatagramProtocol):
    """Sends datagrams, and knows when they have been read."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self._n_probes = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._port = int(transport.get_extra_info("sockname")[1])
        self._mutator = Mutator(seeds(self._port))

    def datagram_received(self, data: bytes, addr: object) -> None:
        del addr
        if f"Call-ID: probe{self._n_probes}\r\n".encode() in data:
            self.answered.set()

    async def send(self, recipes: Iterator[bytes]) -> int:
        """Send what the recipes ask for; return how many were read."""
        n_sent = 0
        while some := list(itertools.islice(recipes, AT_A_TIME)):
            for recipe in some:
                self._transport.sendto(as_bytes(self._mutator.make(recipe))[:MAX_DATAGRAM_BYTES])
            n_sent += len(some)
            await self._probe()
        return n_sent

    async def _probe(self) -> None:
        """Ask what the port can do, and wait for the answer: what came before was read."""
        self._n_probes += 1
        self.answered.clear()
        probe = request("OPTIONS", self._port).replace(b"fuzz", b"probe%d" % self._n_probes)
        self._transport.sendto(probe)
        async with asyncio.timeout(PATIENCE_S):
            await self.answered.wait()


class Exchange:
    """A port at which calls come in, and its attacker, on an event loop of their own."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.faults: list[dict[str, Any]] = []
        self.n_calls = 0
        self._turn = itertools.count(1)
        self._runner = runner
        runner.get_loop().set_exception_handler(lambda _, fault: self.faults.append(fault))
        self.port = SipPort(
            self._converse,
            has_room=lambda: next(self._turn) % ANSWERED_OF == 0,
            allowed=["127.0.0.1"],
            clock=LoopClock(),
        )

    async def _converse(self, dialect: Dialect, wire: Wire) -> None:
        self.n_calls += 1
        assert dialect.open(Opening())
        wire.abort()

    async def open(self) -> Attacker:
        """Open the sockets of both sides."""
        await self.port.listen("127.0.0.1", 0)
        here = self.port.sockets[0].getsockname()
        loop = asyncio.get_running_loop()
        _, attacker = await loop.create_datagram_endpoint(Attacker, remote_addr=here)
        return attacker

    async def call(self) -> int:
        """Make a call as telephones do; return the status of its answer."""
        caller = SipCaller(self.port.sockets[0].getsockname()[1])
        await caller.open()
        try:
            status = 0
            for _ in range(ANSWERED_OF):
                status = await caller.invite(0)
                if status == 200:
                    break
            return status
        finally:
            caller.close()

    async def close(self) -> None:
        self.port.close()
        await self.port.wait_closed()


def test_no_datagram_harms_the_port(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")
    with asyncio.Runner() as runner:
        exchange = Exchange(runner)
        attacker = runner.run(exchange.open())
        caplog.set_level("ERROR", "aiosipua")  # what it swallows of our callbacks, it logs
        attack(lambda recipes: runner.run(attacker.send(recipes)))
        assert exchange.n_calls > 0
        assert runner.run(exchange.call()) == 200
        runner.run(exchange.close())
    assert exchange.faults == []
    assert caplog.text == ""


async def test_an_offer_that_cannot_be_read_is_answered() -> None:
    async with running_server(sip_port=0) as server:
        caller = SipCaller(server.other_ports["sip_port"])
        await caller.open()
        broken = caller.offer(0).replace("m=audio ", "m=audio x")
        caller.send("INVITE", broken)
        assert "SIP/2.0 400 " in await caller.response("INVITE")
        caller.send("ACK")
        assert server.registry.n_kept == 0
        caller.close()


@pytest.mark.parametrize(
    "via",
    [
        "127.0.0.1;received=nowhere.invalid;branch=z9hG4bKx",
        "127.0.0.1;received=..;branch=z9hG4bKx",
        "127.0.0.1;received=\u00fc\ud7ff.;branch=z9hG4bKx",
        "127.0.0.1:70000;branch=z9hG4bKx",
        "127.0.0.1;rport=99999999999;branch=z9hG4bKx",
        "127.0.0.1;rport=-1;branch=z9hG4bKx",
        "127.0.0.1:0;branch=z9hG4bKx",
    ],
)
async def test_an_answer_that_cannot_be_sent_is_not_the_port_s_end(via: str) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    async with running_server(sip_port=0) as server:
        port = server.other_ports["sip_port"]
        caller = SipCaller(port)
        await caller.open()
        for method in ("OPTIONS", "INVITE", "BYE"):
            asked = request(method, port, _SDP if method == "INVITE" else "").decode()
            asked = asked.replace(f"127.0.0.1:{port};branch=z9hG4bK{method};rport", via)
            assert via in asked
            caller._signals.sendto(asked.encode(), ("127.0.0.1", port))
        assert await caller.invite(0) == 200
        assert await caller.hang_up() == 200
        caller.close()
    assert faults == []
