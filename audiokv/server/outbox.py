"""What is still to be sent over one connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from audiokv.server.clock import deadline
from audiokv.server.refusals import CloseCode, as_report
from audiokv.server.wire import pack
from audiokv.streaming.captions import Caption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.clock import Clock
    from audiokv.server.refusals import RefusalError
    from audiokv.server.wire import Wire
    from audiokv.server.worker import Said
    from audiokv.streaming.messages import Done, Progress, Ready

MAX_BYTES = 256 * 1024
SKIP_PARTIALS_BYTES = 64 * 1024
SEND_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 3.0


class Outbox:
    """Bounded queue of messages in front of one connection.

    Towards a `Hub` it is a listener that speaks the native protocol.

    Full policy: a receiver more than ``skip_partials_bytes`` behind gets no more partials until it
    has caught up; one more than ``max_bytes`` behind is cut off. A backlog given at the start (the
    past of the stream) does not count: it is shared with the stream's memory.

    Args:
        wire: Where the messages go; only `pump` uses it.
        clock: Measures how long one message may take.
        max_bytes: Bytes waiting at which the connection is aborted.
        skip_partials_bytes: Bytes waiting from which on partials are skipped, or None to send
            them all.
    """

    def __init__(
        self,
        wire: Wire,
        clock: Clock,
        *,
        max_bytes: int = MAX_BYTES,
        skip_partials_bytes: int | None = None,
    ) -> None:
        self._wire = wire
        self._clock = clock
        self._max_bytes = max_bytes
        self._skip_partials_bytes = (
            max_bytes if skip_partials_bytes is None else skip_partials_bytes
        )
        self._backlog: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._ending: tuple[int, str] | None = None
        self._is_cut = False
        self.waiting_bytes = 0
        self.n_skipped = 0
        self.is_said = False  # everything was sent, and the connection closed after it

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is taken: the connection is closed or about to be."""
        return self._ending is not None or self._is_cut

    @property
    def close_code(self) -> int | None:
        """The code with which the connection is closed, or None while it is not."""
        return None if self._ending is None else self._ending[0]

    def begin(self, ready: Ready, past: Iterable[bytes]) -> None:
        """Queue the greeting and what was said before."""
        self.put_backlog([pack(ready), *past])

    def hear(self, said: Said) -> None:
        """Queue what the stream says; a revisable caption may be skipped."""
        if isinstance(said.event, Caption) and not said.event.is_final:
            self.put_partial(said.packed)
        else:
            self.put(said.packed)

    def report(self, progress: Progress) -> None:
        """Queue how far the stream is."""
        self.put(pack(progress))

    def end(self, done: Done) -> None:
        """Queue the stream's end and close after it."""
        self.put(pack(done))
        self.finish(CloseCode.DONE, "done")

    def fail(self, refusal: RefusalError) -> None:
        """Queue why the connection ends and close after it."""
        self.put(pack(as_report(refusal)))
        self.finish(refusal.close_code, refusal.close_reason)

    def put_backlog(self, messages: Iterable[bytes]) -> None:
        """Queue messages in front of everything put later, outside the bound."""
        self._backlog.extend(messages)
        self._wake.set()

    def put(self, packed: bytes) -> None:
        """Queue a message that must arrive."""
        if self.is_ending:
            return
        self._waiting.append(packed)
        self.waiting_bytes += len(packed)
        self._wake.set()
        if self.waiting_bytes > self._max_bytes:
            self.cut()

    def put_partial(self, packed: bytes) -> None:
        """Queue a message that a later one makes superfluous."""
        if self.waiting_bytes > self._skip_partials_bytes:
            self.n_skipped += 1
            return
        self.put(packed)

    def finish(self, code: int, reason: str) -> None:
        """Close the connection once everything queued is sent; the first call counts."""
        if self._ending is None:
            self._ending = (code, reason)
            self._wake.set()

    def cut(self) -> None:
        """Close the connection at once."""
        self._is_cut = True
        self._wire.abort()
        self._wake.set()

    async def pump(self) -> None:
        """Send what is queued until the connection ends; returns then, never raises its errors."""
        try:
            while not self._is_cut:
                packed = self._next()
                if packed is not None:
                    async with deadline(self._clock, SEND_TIMEOUT_S):
                        await self._wire.send(packed)
                elif self._ending is not None:
                    await self._close(*self._ending)
                    return
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except ConnectionClosed:
            return
        except TimeoutError:
            self.cut()

    def _next(self) -> bytes | None:
        if self._backlog:
            return self._backlog.popleft()
        if self._waiting:
            packed = self._waiting.popleft()
            self.waiting_bytes -= len(packed)
            return packed
        return None

    async def _close(self, code: int, reason: str) -> None:
        # close() of the library first drains the write buffer, outside its own time limit.
        async with deadline(self._clock, CLOSE_TIMEOUT_S):
            await self._wire.close(code, reason)
        self.is_said = True
