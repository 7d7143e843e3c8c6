"""A wire between a client and a server that can be cut."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PIECE_BYTES = 65_536


class Wire:
    """Carries connections to a server, and while it is cut none.

    A cut aborts every connection, without the closing handshake of WebSocket or TCP, and whoever
    connects during it is aborted too.

    Args:
        host: The server.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._is_cut = False
        self._carried: set[asyncio.WriteTransport] = set()
        self.n_cut_connections = 0
        self.n_refused = 0

    async def cut(self, seconds: float) -> None:
        """Cut all connections and keep the wire cut for some time."""
        self._is_cut = True
        self.n_cut_connections += len(self._carried) // 2
        for transport in list(self._carried):
            transport.abort()
        await asyncio.sleep(seconds)
        self._is_cut = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side or a cut ends it."""
        if self._is_cut:
            self.n_refused += 1
            writer.transport.abort()
            return
        try:
            away_reader, away_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer.transport, away_writer.transport}
        self._carried |= ends
        pumps = [
            asyncio.create_task(_pump(reader, away_writer)),
            asyncio.create_task(_pump(away_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            self._carried -= ends
            for transport in ends:
                transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one direction; the end of one side is passed on to the other."""
    try:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except (OSError, RuntimeError):
        writer.transport.abort()


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[tuple[Wire, str]]:
    """Put a wire before a server; yields it and the address a client uses.

    Args:
        url: The server's address, with its port.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    wire = Wire(parts.hostname, parts.port)
    listener = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    try:
        port = listener.sockets[0].getsockname()[1]
        yield wire, urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
    finally:
        listener.close()
