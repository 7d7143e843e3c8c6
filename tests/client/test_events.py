from __future__ import annotations

import asyncio

from audiokv.client.events import EventQueue, LinkEvent
from audiokv.streaming.captions import Caption, Notice, SpeechChange
from audiokv.streaming.messages import Progress


def caption_of(seq: int, *, is_final: bool) -> Caption:
    return Caption(seq, 0, seq, is_final, 0, 0, "", None, None, ())


async def test_events_come_in_order_and_then_the_end() -> None:
    queue = EventQueue()
    events: list[LinkEvent] = [
        SpeechChange(is_on=True, at_ms=1),
        Notice("a", "b"),
        Progress(1, 16, 1, 0),
    ]
    for event in events:
        queue.put(event)
    queue.close()
    assert [await queue.get() for _ in range(4)] == [*events, None]


async def test_a_reader_waits_for_the_next_event() -> None:
    queue = EventQueue()
    reading = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not reading.done()
    queue.put(Notice("a", "b"))
    assert await reading == Notice("a", "b")


async def test_a_slow_reader_loses_old_partials_and_nothing_else() -> None:
    queue = EventQueue(max_replaceable=2)
    for seq in range(1, 7):
        queue.put(caption_of(seq, is_final=seq % 3 == 0))
    queue.put(Notice("a", "b"))
    queue.close()
    seen = []
    while (event := await queue.get()) is not None:
        seen.append(event.seq if isinstance(event, Caption) else event)
    assert seen == [3, 4, 5, 6, Notice("a", "b")]


async def test_reading_makes_room() -> None:
    queue = EventQueue(max_replaceable=1)
    for n in range(3):
        queue.put(Progress(n, n, n, 0))
        assert await queue.get() == Progress(n, n, n, 0)
