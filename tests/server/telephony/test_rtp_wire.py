from __future__ import annotations

import asyncio

import pytest
from websockets.exceptions import ConnectionClosed

from audiokv.server.telephony.rtp_packet import Datagram
from audiokv.server.telephony.rtp_wire import END, MAX_WAITING, RtpWire
from tests.server.doubles import ManualClock

CALLER = ("192.0.2.7", 4_000)


def a_wire(hung_up: list[str] | None = None, clock: ManualClock | None = None) -> RtpWire:
    calls = [] if hung_up is None else hung_up
    return RtpWire(frozenset({CALLER[0]}), lambda: calls.append("BYE"), clock or ManualClock())


async def test_only_the_caller_is_heard() -> None:
    wire = a_wire()
    wire.datagram_received(b"stranger", ("192.0.2.8", 4_000))
    wire.datagram_received(b"", CALLER)
    wire.datagram_received(b"caller", CALLER)
    assert await wire.receive() == b"caller"


async def test_a_changed_description_adds_addresses() -> None:
    wire = a_wire()
    wire.expect("192.0.2.8")
    wire.expect()
    wire.datagram_received(b"moved", ("192.0.2.8", 4_000))
    wire.datagram_received(b"caller", CALLER)
    assert [await wire.receive(), await wire.receive()] == [b"moved", b"caller"]


async def test_a_datagram_knows_when_it_came() -> None:
    clock = ManualClock()
    wire = a_wire(clock=clock)
    await clock.advance(1.25)
    wire.datagram_received(b"caller", CALLER)
    await clock.advance(3)
    heard = await wire.receive()
    assert isinstance(heard, Datagram)
    assert heard.arrived_ms == 1_250


async def test_the_oldest_packets_leave_a_full_queue() -> None:
    wire = a_wire()
    for n in range(MAX_WAITING + 2):
        wire.datagram_received(b"%d" % n, CALLER)
    assert await wire.receive() == b"2"


async def test_the_end_comes_after_what_was_heard_and_stays() -> None:
    hung_up: list[str] = []
    wire = a_wire(hung_up)
    wire.datagram_received(b"last", CALLER)
    wire.end()
    wire.datagram_received(b"too late", CALLER)
    assert await wire.receive() == b"last"
    assert await wire.receive() == END
    for _ in range(2):
        with pytest.raises(ConnectionClosed):
            await wire.receive()
    wire.abort()
    assert hung_up == []  # the caller did


async def test_a_call_is_over_at_its_end_only() -> None:
    going_on, ended = a_wire(), a_wire()
    ended.end()
    assert (going_on.is_over, ended.is_over) == (False, True)


async def test_closing_hangs_up_once_and_sends_nothing() -> None:
    hung_up: list[str] = []
    wire = a_wire(hung_up)
    assert wire.port == 0
    await wire.send(b"caption")
    await wire.close(1000, "done")
    wire.abort()
    assert hung_up == ["BYE"]
    assert await wire.receive() == END
    with pytest.raises(ConnectionClosed):
        await wire.receive()


async def test_the_socket_is_open_until_the_end() -> None:
    wire = a_wire()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: wire, local_addr=("127.0.0.1", 0))
    assert wire.port == transport.get_extra_info("sockname")[1]
    wire.abort()
    assert transport.is_closing()
