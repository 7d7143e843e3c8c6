"""Time as the server sees it, so that tests can hold it in their hands."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Forget the call; does nothing when it was made already."""


class Clock(Protocol):
    """A clock that never goes back, and an alarm."""

    def now_s(self) -> float:
        """Return seconds since some fixed moment."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call back on the event loop after a delay."""


class LoopClock:
    """The clock of the running event loop."""

    def now_s(self) -> float:
        """Return the event loop's time in seconds."""
        return asyncio.get_running_loop().time()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call back on the event loop after a delay."""
        return asyncio.get_running_loop().call_later(delay_s, callback)


@asynccontextmanager
async def deadline(clock: Clock, delay_s: float) -> AsyncIterator[None]:
    """Limit a block of code to a time measured by a clock.

    Raises:
        TimeoutError: The block took longer.
    """
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(delay_s, lambda: scope.reschedule(0.0))
        try:
            yield
        finally:
            timer.cancel()


async def sleep(clock: Clock, delay_s: float) -> None:
    """Wait for a time measured by a clock."""
    done = asyncio.Event()
    timer = clock.call_later(delay_s, done.set)
    try:
        await done.wait()
    finally:
        timer.cancel()
