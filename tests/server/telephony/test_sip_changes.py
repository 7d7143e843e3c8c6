"""Calls that change, or that end otherwise than by a BYE."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from aiosipua import SipRequest

from audiokv.server.telephony import sip
from audiokv.server.telephony.sip import SipPort
from audiokv.streaming.g711 import encode_mulaw
from tests.server.doubles import ManualClock, settle, until
from tests.server.running import running_server
from tests.server.telephony.calling import Follower
from tests.server.telephony.rtp_packets import rtp
from tests.server.telephony.sip_caller import SipCaller
from tests.server.telephony.telephone import samples_of, speak, taken, telephone

if TYPE_CHECKING:
    from aiosipua import SipUAS

    from audiokv.server.app import CaptionServer
    from audiokv.server.protocols.dialect import Dialect
    from audiokv.server.wire import Wire

PACKETS = [rtp(n, encode_mulaw(part)) for n, part in enumerate(samples_of(1, 100))]
OTHER_HOST = "127.0.0.2"


async def at_least(server: CaptionServer, received_ms: int) -> None:
    async with asyncio.timeout(5):
        await taken(server, received_ms)


async def test_a_change_that_is_refused_leaves_the_call_as_it_was() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        assert await caller.invite(0) == 200
        await until(lambda: bool(follower.streams))
        await speak(server, caller, PACKETS[:50])
        assert await caller.invite(18) == 488
        await speak(server, caller, PACKETS[50:])
        await at_least(server, 1_990)
        assert await caller.hang_up() == 200
        (heard,) = await follower.all_done(1)
        assert heard.done is not None
        assert heard.done.received_ms == 2_000
        await until(lambda: server.registry.n_streams == 0)


async def test_a_change_after_a_refused_one_opens_no_second_stream() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        await caller.invite(0)
        port = caller.audio_port
        assert await caller.invite(18) == 488
        assert await caller.invite(8) == 200
        assert caller.audio_port == port
        await settle()
        assert len(follower.streams) == 1
        assert await caller.hang_up() == 200


async def test_audio_from_the_address_of_a_changed_offer_is_heard() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        await caller.invite(0)
        await until(lambda: bool(follower.streams))
        await speak(server, caller, PACKETS[:50])
        moved = caller.offer(0).replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {OTHER_HOST}")
        assert await caller.invite_with(moved) == 200
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as elsewhere:
            elsewhere.bind((OTHER_HOST, 0))
            for packet in PACKETS[50:]:
                elsewhere.sendto(packet, ("127.0.0.1", caller.audio_port))
                await asyncio.sleep(0)
        await at_least(server, 1_990)


@pytest.mark.parametrize("said", ["RTP/SAVP", "RTP/SAVPF", "UDP/TLS/RTP/SAVPF"])
async def test_an_encrypted_call_is_refused(said: str) -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        assert await caller.invite_with(caller.offer(0).replace("RTP/AVP", said)) == 488
        assert server.registry.n_kept == 0


async def test_a_call_that_is_cancelled_at_once_is_not_answered() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        caller.send("INVITE", caller.offer(0))
        caller.send("CANCEL")
        assert (await caller.response("CANCEL")).startswith("SIP/2.0 200")
        assert (await caller.response("INVITE")).startswith("SIP/2.0 487")
        port = server._others["sip_port"]
        assert isinstance(port, SipPort)
        await until(lambda: not port._tasks)
        # Whatever else was sent before this answer would be heard before it.
        caller.send("OPTIONS")
        assert "OPTIONS" in (await caller.response(r"(?:INVITE|OPTIONS)"))
        assert server.registry.n_kept == 0


async def test_a_change_sent_again_is_answered_again() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        await caller.invite(0)
        offer = caller.offer(8)
        caller.send("INVITE", offer)
        first = await caller.response("INVITE")
        caller.send("INVITE", offer, number=caller.n_requests)
        again = await caller.response("INVITE")
        assert first.startswith("SIP/2.0 200")
        assert again == first
        caller.send("ACK")
        assert await caller.hang_up() == 200


async def test_another_change_is_answered_before_the_last_one_is_acknowledged() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        await caller.invite(0)
        caller.send("INVITE", caller.offer(8))
        assert "PCMA" in await caller.response("INVITE")
        caller.send("INVITE", caller.offer(0))
        assert "PCMU" in await caller.response("INVITE")


async def test_an_older_change_is_no_repetition() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        await caller.invite(0)
        assert await caller.invite(8) == 200
        caller.send("INVITE", caller.offer(0), number=caller.n_requests)
        assert (await caller.response("INVITE")).startswith("SIP/2.0 500")  # its number is old


async def library_of(n_rooms: int) -> tuple[SipPort, SipUAS, list[Wire]]:
    """Return a port that has room for so many calls, its library and the calls' connections."""
    wires: list[Wire] = []

    async def converse(dialect: Dialect, wire: Wire) -> None:
        del dialect
        wires.append(wire)
        while await wire.receive():
            pass

    port = SipPort(
        converse,
        has_room=lambda: len(wires) < n_rooms,
        allowed=["127.0.0.1"],
        clock=ManualClock(),
    )
    await port.listen("127.0.0.1", 0)
    assert port._uas is not None
    return port, port._uas, wires


@pytest.mark.parametrize(
    ("n_rooms", "codec", "status"), [(0, 0, "503"), (1, 18, "488"), (1, None, "488")]
)
async def test_the_library_forgets_a_refused_call(
    n_rooms: int, codec: int | None, status: str
) -> None:
    port, uas, _ = await library_of(n_rooms)
    caller = SipCaller(port.sockets[0].getsockname()[1])
    await caller.open()
    caller.send("INVITE", caller.offer(codec) if codec is not None else "")
    assert status in (await caller.response("INVITE")).splitlines()[0]
    await until(lambda: not port._tasks)  # no ACK comes
    assert uas._calls == {}
    assert uas.transactions._server == {}
    caller.close()
    await port.wait_closed()


@pytest.mark.parametrize("is_acknowledged", [False, True])
async def test_the_library_forgets_a_call_that_the_server_ended(*, is_acknowledged: bool) -> None:
    port, uas, wires = await library_of(1)
    caller = SipCaller(port.sockets[0].getsockname()[1])
    await caller.open()
    caller.send("INVITE", caller.offer(0))
    await caller.response("INVITE")
    if is_acknowledged:
        caller.send("ACK")
    await until(lambda: bool(wires))
    await wires[0].close(1000, "done")
    assert (await caller.request()).startswith("BYE ")  # and no answer to it
    await until(lambda: not port._tasks)
    assert uas._calls == {}
    assert uas.transactions._server == {}
    caller.close()
    await port.wait_closed()


def test_at_a_socket_for_both_families_a_caller_of_ipv4_is_known_and_answered() -> None:
    heard: list[tuple[str, int]] = []
    sent: list[tuple[str, int]] = []
    port = sip._UdpPort(("::", 0), {"192.0.2.1"}.__contains__)
    port._dispatch = lambda data, addr: heard.append(addr)  # type: ignore[method-assign]  # noqa: ARG005
    port.socket = SimpleNamespace(family=socket.AF_INET6)  # type: ignore[assignment]
    port._udp_transport = SimpleNamespace(  # type: ignore[assignment]
        sendto=lambda _, address: sent.append(address)
    )
    port.datagram_received(b"OPTIONS sip:captions SIP/2.0\r\n\r\n", ("::ffff:192.0.2.1", 5060))
    port.datagram_received(b"OPTIONS sip:captions SIP/2.0\r\n\r\n", ("::ffff:192.0.2.2", 5060))
    assert heard == [("192.0.2.1", 5060)]
    port.refuse(SipRequest(method="OPTIONS", uri="sip:captions"), heard[0], 403, "Forbidden")
    assert sent == [("::ffff:192.0.2.1", 5060)]
