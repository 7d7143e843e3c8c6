"""The client's clock and its patience, replaceable in tests."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """A clock that never goes back, and a way to wait by it."""

    def now_s(self) -> float:
        """Return seconds since some fixed moment."""

    async def sleep(self, delay_s: float) -> None:
        """Return after a delay."""


class LoopClock:
    """The clock of the running event loop."""

    def now_s(self) -> float:
        """Return the event loop's time in seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        """Return after a delay."""
        await asyncio.sleep(delay_s)


class Backoff:
    """Growing waits between attempts, spread so that many clients do not return at one moment.

    Args:
        first_s: Longest first wait.
        most_s: Longest wait ever.
        pick: Returns a number from 0 to 1; a wait is that far between half and all of its longest.
    """

    def __init__(
        self, first_s: float = 0.25, most_s: float = 10.0, pick: Callable[[], float] = random.random
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._pick = pick
        self._longest_s = first_s

    def next_s(self) -> float:
        """Return the next wait in seconds."""
        longest_s = self._longest_s
        self._longest_s = min(self._most_s, longest_s * 2)
        return longest_s * (0.5 + 0.5 * self._pick())

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self._longest_s = self._first_s


class Patience:
    """Decides when failing has gone on for too long.

    Args:
        limit_s: Seconds of failure in a row that are borne.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._failing_since_s: float | None = None

    def note_success(self) -> None:
        """Forget the failures so far."""
        self._failing_since_s = None

    def ends_before(self, failed_at_s: float, delay_s: float) -> bool:
        """Take note of a failure; return whether patience ends before another attempt."""
        if self._failing_since_s is None:
            self._failing_since_s = failed_at_s
        return failed_at_s + delay_s - self._failing_since_s > self._limit_s
