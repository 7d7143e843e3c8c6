"""What a link tells its user, queued without ever holding up the connection."""

from __future__ import annotations

import asyncio
from collections import deque

from audiokv.streaming.captions import Caption, Event
from audiokv.streaming.messages import Progress

LinkEvent = Event | Progress


class EventQueue:
    """Events in order, for one reader.

    Full policy: a reader who is far behind loses the oldest events that later ones replace
    (partial captions and progress), never a final caption, a notice or a change of speech.

    Args:
        max_replaceable: Replaceable events waiting at most.
    """

    def __init__(self, max_replaceable: int = 512) -> None:
        self._max_replaceable = max_replaceable
        self._waiting: deque[LinkEvent] = deque()
        self._n_replaceable = 0
        self._wake = asyncio.Event()
        self._is_closed = False

    def put(self, event: LinkEvent) -> None:
        """Add an event."""
        self._waiting.append(event)
        if _is_replaceable(event):
            self._n_replaceable += 1
            if self._n_replaceable > self._max_replaceable:
                self._drop_one()
        self._wake.set()

    def close(self) -> None:
        """End the queue once what waits is read."""
        self._is_closed = True
        self._wake.set()

    async def get(self) -> LinkEvent | None:
        """Return the next event, or None after the last."""
        while not self._waiting:
            if self._is_closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        event = self._waiting.popleft()
        self._n_replaceable -= _is_replaceable(event)
        return event

    def _drop_one(self) -> None:
        oldest = next(i for i, event in enumerate(self._waiting) if _is_replaceable(event))
        del self._waiting[oldest]
        self._n_replaceable -= 1


def _is_replaceable(event: LinkEvent) -> bool:
    return isinstance(event, Progress) or (isinstance(event, Caption) and not event.is_final)
