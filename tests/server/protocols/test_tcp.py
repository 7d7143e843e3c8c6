from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trustme
from websockets.exceptions import ConnectionClosed

from audiokv.server.connections import ConnectionTable
from audiokv.server.protocols.tcp import READ_BYTES, TcpPort, TcpWire
from tests.server.doubles import until
from tests.server.running import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LOGGER = logging.getLogger("tests.tcp")


class Rig:
    """A listening port, and a client of it."""

    def __init__(self, port: TcpPort, table: ConnectionTable) -> None:
        self.port = port
        self.table = table

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        number = self.port.sockets[0].getsockname()[1]
        return await asyncio.open_connection("127.0.0.1", number)


@asynccontextmanager
async def listening(
    handle: Callable[[TcpWire], Awaitable[None]],
    *,
    max_per_ip: int = 4,
    max_message_bytes: int = READ_BYTES,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Rig]:
    table = ConnectionTable(max_per_ip)
    port = TcpPort(handle, table=table, logger=LOGGER, max_message_bytes=max_message_bytes)
    assert port.sockets == ()
    async with asyncio.timeout(PATIENCE_S):
        await port.listen("127.0.0.1", 0, context)
        try:
            yield Rig(port, table)
        finally:
            port.close()
            await port.wait_closed()


async def test_bytes_come_and_go_until_the_client_has_closed_its_side() -> None:
    wires: list[TcpWire] = []

    async def echo(wire: TcpWire) -> None:
        wires.append(wire)
        assert len(wire.name) == 8
        await wire.send(await wire.receive())
        with pytest.raises(ConnectionClosed):
            await wire.receive()
        assert wire.is_close_acknowledged
        await wire.send(b"late words")
        await wire.close(1000, "done")

    async with listening(echo) as rig:
        reader, writer = await rig.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert not wires[0].is_close_acknowledged
        writer.write_eof()
        assert await reader.read() == b"late words"
        await until(lambda: len(rig.table) == 0)
        writer.close()


async def test_the_last_words_arrive_although_the_client_still_sends() -> None:
    last_words = b"x" * 500_000
    is_sent = asyncio.Event()

    async def part(wire: TcpWire) -> None:
        await is_sent.wait()
        await wire.send(last_words)
        await wire.close(1000, "done")

    async with listening(part) as rig:
        reader, writer = await rig.connect()
        writer.write(bytes(20 * READ_BYTES))
        await writer.drain()
        is_sent.set()
        assert await reader.read() == last_words
        writer.close()


async def test_no_piece_is_larger_than_a_message_may_be() -> None:
    sizes: list[int] = []

    async def measure(wire: TcpWire) -> None:
        while sum(sizes) < 5_000:
            sizes.append(len(await wire.receive()))

    async with listening(measure, max_message_bytes=1_024) as rig:
        _, writer = await rig.connect()
        writer.write(bytes(5_000))
        await until(lambda: sum(sizes) == 5_000)
        writer.close()
    assert max(sizes) <= 1_024


async def test_a_connection_with_tls_ends_as_well() -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)

    async def echo(wire: TcpWire) -> None:
        await wire.send(await wire.receive())
        await wire.close(1000, "done")

    async with listening(echo, context=server) as rig:
        number = rig.port.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", number, ssl=client, server_hostname="localhost"
        )
        writer.write(b"hello")
        assert await reader.read() == b"hello"
        writer.close()


async def test_a_lost_connection_is_a_closed_one() -> None:
    ends: list[type[BaseException]] = []

    async def handle(wire: TcpWire) -> None:
        try:
            while True:
                await wire.receive()
                await wire.send(bytes(1_000_000))
        except ConnectionClosed as error:
            ends.append(type(error))

    async with listening(handle) as rig:
        _, writer = await rig.connect()
        writer.write(b"hello")
        await until(lambda: len(rig.table) == 1)
        writer.transport.abort()
        await until(lambda: len(ends) == 1)


async def test_a_failure_ends_its_own_connection_and_keeps_its_words_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(wire: TcpWire) -> None:
        message = await wire.receive()
        if message == b"bad":
            raise RuntimeError("secret words")
        await wire.send(message)
        await wire.close(1000, "done")

    async with listening(fail) as rig:
        reader, writer = await rig.connect()
        writer.write(b"bad")
        assert await reader.read() == b""
        writer.close()
        reader, writer = await rig.connect()
        writer.write(b"good")
        assert await reader.read() == b"good"
        writer.close()
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_one_address_has_so_many_connections_and_no_more() -> None:
    async def wait(wire: TcpWire) -> None:
        with pytest.raises(ConnectionClosed):
            await wire.receive()

    async with listening(wait, max_per_ip=2) as rig:
        held = [await rig.connect() for _ in range(2)]
        await until(lambda: len(rig.table) == 2)
        reader, writer = await rig.connect()
        assert await reader.read() == b""
        writer.close()
        for _, held_writer in held:
            held_writer.close()
        await until(lambda: len(rig.table) == 0)


async def test_closing_the_port_ends_its_connections() -> None:
    async def wait(wire: TcpWire) -> None:
        with pytest.raises(ConnectionClosed):
            await wire.receive()

    async with listening(wait) as rig:
        reader, writer = await rig.connect()
        await until(lambda: len(rig.table) == 1)
        rig.port.close()
        await rig.port.wait_closed()
        assert await reader.read() == b""
        writer.close()
