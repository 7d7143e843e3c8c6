"""Plain TCP connections for the protocols that need no WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed, ConnectionClosedError, ConnectionClosedOK

from audiokv.server.failure_log import log_failure

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable
    from socket import socket
    from ssl import SSLContext

    from audiokv.server.connections import ConnectionTable

READ_BYTES = 16_384


class TcpWire:
    """A connection whose messages are pieces of a byte stream, split anywhere.

    Args:
        reader: What comes in.
        writer: What goes out.
        max_bytes: Size of the largest piece.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        max_bytes: int = READ_BYTES,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._max_bytes = max_bytes
        self._reading = asyncio.Lock()
        self.name = secrets.token_hex(4)

    @property
    def is_close_acknowledged(self) -> bool:
        """Whether the client closed its side."""
        return self._reader.at_eof()

    async def receive(self) -> bytes:
        """Return the next bytes.

        Raises:
            ConnectionClosed: The client closed its side, or the connection is lost.
        """
        async with self._reading:
            try:
                piece = await self._reader.read(self._max_bytes)
            except OSError as error:
                raise ConnectionClosedError(None, None) from error
        if not piece:
            raise ConnectionClosedOK(None, None)
        return piece

    async def send(self, packed: bytes) -> None:
        """Send bytes; returns when the connection can take the next.

        Raises:
            ConnectionClosed: The connection is lost.
        """
        try:
            self._writer.write(packed)
            await self._writer.drain()
        except OSError as error:
            raise ConnectionClosedError(None, None) from error

    async def close(self, code: int, reason: str) -> None:
        """Say that nothing more comes, and wait until the client closes its side.

        Closed at once, with bytes of the client still unread, the kernel would reset the
        connection, and the client could lose the last words sent to it.
        """
        del code, reason  # a byte stream has no room for them
        with contextlib.suppress(OSError, ConnectionClosed):
            if self._writer.can_write_eof():  # TLS cannot
                self._writer.write_eof()
                while not self._reader.at_eof():
                    await self.receive()
            self._writer.close()
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


class TcpPort:
    """A listening port; each connection is counted, served, and closed.

    Args:
        handle: Serves one connection; returns when it is over.
        table: Where the connections are counted; above its limit they are cut off.
        logger: Where failures of ``handle`` are told.
        max_message_bytes: Size of the largest piece that ``handle`` may be given.
    """

    def __init__(
        self,
        handle: Callable[[TcpWire], Awaitable[None]],
        *,
        table: ConnectionTable,
        logger: logging.Logger,
        max_message_bytes: int = READ_BYTES,
    ) -> None:
        self._handle = handle
        self._max_bytes = min(READ_BYTES, max_message_bytes)
        self._table = table
        self._logger = logger
        self._wires: set[TcpWire] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._server: asyncio.Server | None = None

    @property
    def sockets(self) -> tuple[socket, ...]:
        """The listening sockets."""
        return () if self._server is None else self._server.sockets

    async def listen(self, host: str, port: int, context: SSLContext | None) -> None:
        """Listen.

        Args:
            host: Address to listen on.
            port: Port to listen on; 0 takes a free one.
            context: The TLS settings, or None.

        Raises:
            OSError: The address or the port cannot be had.
        """
        self._server = await asyncio.start_server(self._serve, host, port, ssl=context)

    def close(self) -> None:
        """Stop listening and cut all connections off."""
        if self._server is not None:
            self._server.close()
        for wire in self._wires:
            wire.abort()

    async def wait_closed(self) -> None:
        """Wait until no connection is served any more."""
        await self._is_empty.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        wire = TcpWire(reader, writer, self._max_bytes)
        self._wires.add(wire)
        self._is_empty.clear()
        count = self._table.add(writer, str(peer[0]) if peer else "")
        try:
            if count <= self._table.max_per_ip:
                await self._handle(wire)
        except Exception as error:  # noqa: BLE001  the boundary of a connection
            log_failure(self._logger, f"connection {wire.name}", error)
        finally:
            self._table.remove(writer)
            wire.abort()
            self._wires.discard(wire)
            if not self._wires:
                self._is_empty.set()
