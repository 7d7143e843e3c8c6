from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from benchmarks.wire import wired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


GONE = (ConnectionError, asyncio.IncompleteReadError)


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1_000):
            writer.write(piece.upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/stream"
    finally:
        server.close()


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])


async def test_it_carries_both_ways_and_keeps_the_path() -> None:
    async with echo() as url, wired(url) as (wire, wired_url):
        assert wired_url.endswith("/v1/stream")
        assert wired_url != url
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(wired_url))
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert wire.n_cut_connections == 0


async def test_a_cut_aborts_and_refuses_until_it_is_over() -> None:
    async with asyncio.timeout(10), echo() as url, wired(url) as (wire, wired_url):
        port = port_of(wired_url)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a")
        await reader.readexactly(1)
        cutting = asyncio.create_task(wire.cut(0.2))
        with pytest.raises(GONE):
            await reader.readexactly(1)
        refused, _ = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(GONE):
            await refused.readexactly(1)
        await cutting
        assert (wire.n_cut_connections, wire.n_refused) == (1, 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"back")
        assert await reader.readexactly(4) == b"BACK"
        writer.close()


async def test_without_a_server_the_client_is_let_go() -> None:
    async with echo() as url:
        pass
    async with wired(url) as (_, wired_url):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(wired_url))
        with pytest.raises(GONE):
            await reader.readexactly(1)
        writer.close()
