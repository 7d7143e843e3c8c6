from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from audiokv.client.events import EventQueue
from audiokv.client.resumable import ResumableStream
from audiokv.client.settings import LinkSettings
from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from audiokv.streaming.captions import Caption, Notice, SpeechChange, Word
from audiokv.streaming.messages import (
    Done,
    Finalize,
    Limits,
    Progress,
    Ready,
    Resume,
    Stop,
    Update,
)

LIMITS = Limits(1_000, 60.0, 60.0, 100)


def ready(*, name: str = "r-1", is_resumed: bool = False, received: int = 0) -> Ready:
    return Ready("s", "m", ("en",), LIMITS, name, is_resumed, received)


def audio(ms: int) -> bytes:
    return np.zeros(ms * 16, dtype="<i2").tobytes()


def final(seq: int, start_ms: int, end_ms: int) -> Caption:
    word = Word("word", start_ms, end_ms, 0.9, is_final=True)
    return Caption(
        seq=seq,
        segment=seq - 1,
        revision=0,
        is_final=True,
        start_ms=start_ms,
        end_ms=end_ms,
        text="word",
        language=None,
        speaker=None,
        words=(word,),
    )


@dataclass
class Bench:
    """A stream with its events and successes."""

    events: EventQueue = field(default_factory=EventQueue)
    n_successes: int = 0

    def __post_init__(self) -> None:
        self.stream = ResumableStream(LinkSettings(prompt="p"), self.events, self.succeed)

    def succeed(self) -> None:
        self.n_successes += 1

    async def drained(self) -> list[object]:
        self.events.close()
        events: list[object] = []
        while (event := await self.events.get()) is not None:
            events.append(event)
        return events


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def sent_by(stream: ResumableStream, n_items: int) -> list[object]:
    return [await stream.next_to_send(LIMITS) for _ in range(n_items)]


async def test_audio_goes_out_in_pieces_the_server_takes(bench: Bench) -> None:
    bench.stream.hear(ready())
    bench.stream.append(audio(50))
    pieces = await sent_by(bench.stream, 2)
    assert pieces == [bytes(1_000), bytes(600)]


async def test_it_is_full_beyond_what_the_server_allows(bench: Bench) -> None:
    bench.stream.append(audio(9_000))
    before = (bench.stream.is_full, bench.stream.was_ready)
    bench.stream.hear(ready())
    assert before == (False, False)
    assert (bench.stream.is_full, bench.stream.was_ready) == (True, True)
    assert bench.stream.unacknowledged_ms == 9_000


async def test_progress_makes_room_and_counts_as_success_once(bench: Bench) -> None:
    bench.stream.hear(ready())
    bench.stream.append(audio(50))
    await sent_by(bench.stream, 2)
    cache = CacheCounters(
        "fifo",
        2,
        1,
        1,
        PoolSlots(0, 1, 0),
        Evictions(1, 0, 0),
        1_024,
        LeftSlots(1, 0, 0, 0),
        ChosenSlots(0, 0, 1),
    )
    for _ in range(2):
        bench.stream.hear(Progress(50, 800, 40, 10, cache))
    assert bench.n_successes == 1
    assert bench.stream.unacknowledged_ms == 0
    assert await bench.drained() == [Progress(50, 800, 40, 10, cache)] * 2


async def test_resuming_asks_for_what_was_missed(bench: Bench) -> None:
    assert bench.stream.opening().resume is None
    bench.stream.hear(ready(name="r-7"))
    bench.stream.hear(final(1, 0, 10))
    assert bench.stream.opening().resume == Resume("r-7", 1)


async def test_a_server_that_quietly_begins_anew_is_noticed(bench: Bench) -> None:
    bench.stream.hear(ready())
    bench.stream.append(audio(50))
    await sent_by(bench.stream, 2)
    bench.stream.hear(final(1, 0, 20))
    bench.stream.hear(ready(name="r-2"))
    bench.stream.hear(final(1, 0, 10))
    captions = [e for e in await bench.drained() if isinstance(e, Caption)]
    assert [(c.seq, c.segment, c.start_ms) for c in captions] == [(1, 0, 0), (2, 1, 20)]
    assert await bench.stream.next_to_send(LIMITS) == bytes(960)


async def test_changed_wishes_open_the_next_stream(bench: Bench) -> None:
    bench.stream.request(Update(language="de"))
    bench.stream.request(Update(prompt="q", profile="noisy"))
    bench.stream.request(Update())
    start = bench.stream.opening()
    assert (start.language, start.prompt, start.profile) == ("de", "q", "noisy")


async def test_requests_go_out_in_order(bench: Bench) -> None:
    bench.stream.hear(ready())
    bench.stream.request(Finalize())
    bench.stream.request(Stop())
    assert await sent_by(bench.stream, 2) == [Finalize(), Stop()]


async def test_what_the_server_says_is_passed_on_in_the_sources_time(bench: Bench) -> None:
    bench.stream.append(audio(100))
    bench.stream.drop_oldest(60)
    bench.stream.drop_oldest(60)
    bench.stream.hear(ready())
    await sent_by(bench.stream, 2)
    bench.stream.hear(SpeechChange(is_on=True, at_ms=10))
    bench.stream.hear(Notice("rate_mismatch", "Odd."))
    bench.stream.hear(Progress(20, 320, 10, 10))
    dropped, speech, notice, lost, progress = await bench.drained()
    assert isinstance(dropped, Notice)
    assert dropped.code == "audio_dropped"
    assert speech == SpeechChange(is_on=True, at_ms=50)
    assert notice == Notice("rate_mismatch", "Odd.")
    assert lost == Notice("audio_lost", "0.0 s of audio could not be kept and are missing.")
    assert progress == Progress(60, 960, 50, 10)


async def test_the_end_is_in_the_sources_time(bench: Bench) -> None:
    bench.stream.append(audio(100))
    bench.stream.drop_oldest(60)
    bench.stream.hear(ready())
    await sent_by(bench.stream, 3)
    bench.stream.hear(final(1, 0, 10))
    assert bench.stream.finish(Done(60, 0)) == Done(100, 1)


async def test_whoever_waits_for_room_is_let_go_at_the_end(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.stream.wait_for_room())
    await asyncio.sleep(0)
    bench.stream.release()
    await waiting
