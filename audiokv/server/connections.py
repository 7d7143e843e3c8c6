"""Counting of connections by address, from the first byte on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from websockets.asyncio.server import ServerConnection

if TYPE_CHECKING:
    import asyncio


class Connection(Protocol):
    """What can be counted and cut off: a WebSocket or a plain stream."""

    @property
    def transport(self) -> asyncio.WriteTransport:
        """Its socket."""


class ConnectionTable:
    """All open connections, also those whose opening handshake is not complete.

    Full policy: above ``max_per_ip`` a connection is answered with a refusal; above twice as many
    it is cut off unanswered.

    Args:
        max_per_ip: Connections of one address.
    """

    def __init__(self, max_per_ip: int) -> None:
        self.max_per_ip = max_per_ip
        self._open: dict[Connection, str] = {}
        self._per_ip: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._open)

    def add(self, connection: Connection, address: str) -> int:
        """Note a connection; return how many its address has now."""
        self._open[connection] = address
        self._per_ip[address] += 1
        return self._per_ip[address]

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        address = self._open.pop(connection)
        self._per_ip[address] -= 1
        if not self._per_ip[address]:
            del self._per_ip[address]

    def abort_all(self) -> None:
        """Cut every connection off."""
        for connection in list(self._open):
            connection.transport.abort()


class CountedConnection(ServerConnection):
    """A connection that is in its table while its socket is open."""

    table: ConnectionTable
    is_over_limit = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection in."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        count = self.table.add(self, str(peer[0]) if peer else "")
        self.is_over_limit = count > self.table.max_per_ip
        if count > 2 * self.table.max_per_ip:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection out."""
        self.table.remove(self)
        super().connection_lost(exc)


def counted(table: ConnectionTable) -> type[CountedConnection]:
    """Return the class of connections that are counted in a table."""
    return type("TableConnection", (CountedConnection,), {"table": table})
