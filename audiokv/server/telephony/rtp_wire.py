"""The UDP side of one call as a connection: datagrams in, nothing out."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosedOK

from audiokv.server.telephony.rtp_packet import Datagram

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.server.clock import Clock

END = b""  # stands for no datagram: none will come any more
MAX_WAITING = 512  # packets; ten seconds of a call


class RtpWire(asyncio.DatagramProtocol):
    """A call's audio. The socket is always read.

    Full policy: the oldest packet leaves; the call's timeline makes a gap of it.

    Args:
        callers: Addresses from which the call's audio may come.
        hang_up: Ends the call in its signalling; called once at most.
        clock: Tells when a datagram comes.
    """

    def __init__(
        self, callers: frozenset[str], hang_up: Callable[[], object], clock: Clock
    ) -> None:
        self._callers = callers
        self._hang_up = hang_up
        self._clock = clock
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_WAITING)
        self._transport: asyncio.BaseTransport | None = None
        self._is_over = False
        self.name = secrets.token_hex(4)
        self.is_close_acknowledged = True  # there is no closing handshake

    @property
    def is_over(self) -> bool:
        """Whether the call has ended."""
        return self._is_over

    def expect(self, *hosts: str) -> None:
        """Take audio from these addresses too: the call's description was changed."""
        self._callers = self._callers | set(hosts)

    @property
    def port(self) -> int:
        """The port listened on; 0 before the socket is open."""
        if self._transport is None:
            return 0
        return int(self._transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the socket."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Take a datagram of the caller; others are dropped."""
        if data and addr[0] in self._callers and not self._is_over:
            self._put(Datagram(data, self._clock.now_s() * 1000))

    def _put(self, item: bytes | None) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(item)

    def end(self) -> None:
        """Let `receive` find the end after what came before: the caller hung up."""
        if not self._is_over:
            self._is_over = True
            self._put(END)
            self._put(None)

    async def receive(self) -> bytes:
        """Return the next datagram; `END` after the last.

        Raises:
            ConnectionClosed: The call is over.
        """
        item = await self._waiting.get()
        if item is None:
            self._put(None)
            raise ConnectionClosedOK(None, None)
        return item

    async def send(self, packed: bytes) -> None:
        """Send nothing: a telephone shows no text."""

    async def close(self, code: int, reason: str) -> None:
        """Hang up."""
        del code, reason
        self.abort()

    def abort(self) -> None:
        """Hang up and close the socket."""
        if not self._is_over:
            self.end()
            self._hang_up()
        if self._transport is not None:
            self._transport.close()
