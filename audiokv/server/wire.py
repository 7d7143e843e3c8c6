"""One WebSocket as the server uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from audiokv.streaming.messages import encode

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from audiokv.streaming.messages import ServerMessage


def pack(message: ServerMessage) -> bytes:
    """Return a message as the UTF-8 bytes of one text message, to be shared by all receivers."""
    return encode(message).encode()


class Binary(bytes):
    """Bytes that go out as a binary message; plain bytes are UTF-8 text."""

    __slots__ = ()


class Wire(Protocol):
    """A connection to one client."""

    @property
    def name(self) -> str:
        """Short name of the connection, for the log."""

    @property
    def is_close_acknowledged(self) -> bool:
        """Whether the client answered or began the closing handshake."""

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            ConnectionClosed: The connection is gone.
        """

    async def send(self, packed: bytes) -> None:
        """Send a message, binary if it is `Binary`; returns when the next can be taken.

        Raises:
            ConnectionClosed: The connection is gone.
        """

    async def close(self, code: int, reason: str) -> None:
        """Close with a closing handshake."""

    def abort(self) -> None:
        """Close at once, dropping what is not sent."""


class WebSocketWire:
    """A connection of the websockets library.

    Args:
        connection: The connection after its opening handshake.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.name = connection.id.hex[:8]

    @property
    def is_close_acknowledged(self) -> bool:
        """Whether the client answered or began the closing handshake."""
        return self._connection.protocol.close_rcvd is not None

    async def receive(self) -> str | bytes:
        """Return the next message."""
        return await self._connection.recv()

    async def send(self, packed: bytes) -> None:
        """Send a message, binary if it is `Binary`."""
        await self._connection.send(packed, text=not isinstance(packed, Binary))

    async def close(self, code: int, reason: str) -> None:
        """Close with a closing handshake."""
        await self._connection.close(code, reason)

    def abort(self) -> None:
        """Close at once."""
        self._connection.transport.abort()
