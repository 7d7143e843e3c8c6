from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from audiokv.server.connections import ConnectionTable
from tests.server.doubles import until
from tests.server.running import Source, http_get, running_server

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection


def test_connections_are_counted_by_address() -> None:
    table = ConnectionTable(2)
    first, second, third = (cast("ServerConnection", object()) for _ in range(3))
    assert [table.add(first, "a"), table.add(second, "a"), table.add(third, "b")] == [1, 2, 1]
    assert len(table) == 3
    table.remove(first)
    assert table.add(first, "a") == 2
    for connection in (first, second, third):
        table.remove(connection)
    assert len(table) == 0
    assert not table._per_ip


async def test_one_address_has_so_many_connections_and_no_more() -> None:
    async with running_server(max_connections_per_ip=2) as server:
        first, second = await Source.open(server), await Source.open(server)
        third = await Source.open(server)
        assert await third.error() == ("too_many_connections", 1013)
        await until(lambda: server.n_connections == 2)
        page = await http_get(server, "/health")
        assert page.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After: 10" in page
        await first.connection.close()
        await until(lambda: server.n_connections == 1)
        fourth = await Source.open(server)
        await fourth.start()
        await second.start()


async def test_connections_that_say_nothing_are_counted_too() -> None:
    async with running_server(max_connections_per_ip=2, handshake_timeout_s=600) as server:
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(4)]
        await until(lambda: server.n_connections == 4)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()
        for _, silent_writer in silent:
            silent_writer.transport.abort()
        await until(lambda: not server.n_connections)
