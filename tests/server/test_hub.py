from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from audiokv.server.hub import Hub
from audiokv.server.outbox import Outbox
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.replay import ReplayBuffer
from audiokv.server.wire import pack
from audiokv.server.worker import Said
from audiokv.streaming.captions import Caption, Event, Notice, SpeechChange
from audiokv.streaming.messages import (
    Done,
    ErrorReport,
    Limits,
    Progress,
    Ready,
    ServerMessage,
    decode_server,
)
from tests.server.doubles import FakeWire, ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable

READY = Ready("s-1", "scripted", ("en",), Limits(65_536, 60, 60, 10_000))
FIRST = Caption(
    seq=1,
    segment=0,
    revision=0,
    is_final=False,
    start_ms=0,
    end_ms=10,
    text="",
    language=None,
    speaker=None,
    words=(),
)
DONE = Done(10, 1)


def said(*events: Event) -> list[Said]:
    return [Said(event, pack(event)) for event in events]


def captions(kinds: str) -> list[Said]:
    """Return captions numbered from 1, an f for each final and a p for each partial."""
    numbered = enumerate(kinds, start=1)
    return said(*(replace(FIRST, seq=seq, is_final=kind == "f") for seq, kind in numbered))


class Listener:
    """A connection that keeps what it is sent."""

    def __init__(self, skip_partials_bytes: int | None = None) -> None:
        self.wire = FakeWire()
        self.outbox = Outbox(self.wire, ManualClock(), skip_partials_bytes=skip_partials_bytes)

    async def heard(self) -> list[ServerMessage]:
        """End the connection, and return what came."""
        self.outbox.finish(CloseCode.GOING_AWAY, "end of test")
        await self.outbox.pump()
        return [decode_server(packed.decode()) for packed in self.wire.sent]


async def seqs(listener: Listener) -> list[int]:
    return [m.seq for m in await listener.heard() if isinstance(m, Caption)]


async def test_everyone_hears_what_is_said_and_only_the_source_is_warned() -> None:
    hub, source, viewer = Hub(), Listener(), Listener()
    hub.attach_source(source.outbox, READY, 0)
    hub.attach_viewer(viewer.outbox, READY)
    change, notice, progress = (
        SpeechChange(is_on=True, at_ms=0),
        Notice("c", "m"),
        Progress(1, 16, 1, 0),
    )
    hub.publish(said(change, notice, FIRST))
    hub.report(progress)
    hub.end(DONE)
    assert await source.heard() == [READY, change, notice, FIRST, progress, DONE]
    assert await viewer.heard() == [READY, change, FIRST, DONE]
    assert source.wire.closed == viewer.wire.closed == (1000, "done")


async def test_a_source_that_comes_back_hears_what_it_missed() -> None:
    hub, first, second = Hub(), Listener(), Listener()
    hub.attach_source(first.outbox, READY, 0)
    news = captions("pfppf")
    hub.publish(news[:2])
    hub.detach_source()
    hub.publish(news[2:4])
    hub.report(Progress(1, 16, 1, 0))
    hub.attach_source(second.outbox, READY, 1)
    hub.publish(news[4:])
    assert await seqs(first) == [1, 2]
    assert await seqs(second) == [2, 3, 4, 5]
    assert hub.n_segments == 2
    assert hub.last_seq == 5


async def test_a_second_source_takes_over_from_the_first() -> None:
    hub, first, second = Hub(), Listener(), Listener()
    hub.attach_source(first.outbox, READY, 0)
    hub.attach_source(second.outbox, READY, 0)
    hub.publish(captions("f"))
    assert hub.source is second.outbox
    last = (await first.heard())[-1]
    assert isinstance(last, ErrorReport)
    assert last.code == "taken_over"
    assert first.wire.closed == (1008, "taken over")
    assert await seqs(first) == []
    assert await seqs(second) == [1]


async def test_a_late_viewer_hears_all_finals_and_the_open_caption() -> None:
    hub, viewer = Hub(ReplayBuffer(max_recent=3)), Listener()
    hub.publish(captions("pfpfpfpp"))
    hub.attach_viewer(viewer.outbox, READY)
    assert await seqs(viewer) == [2, 4, 6, 8]


async def test_a_slow_viewer_loses_partials_only() -> None:
    hub, slow, quick = Hub(), Listener(skip_partials_bytes=1_000), Listener()
    hub.attach_viewer(slow.outbox, READY)
    hub.attach_viewer(quick.outbox, READY)
    hub.publish(captions("pppppppppf" * 20))
    heard = await seqs(slow)
    assert await seqs(quick) == list(range(1, 201))
    assert [seq for seq in heard if seq % 10 == 0] == list(range(10, 201, 10))
    assert len(heard) < 60


async def test_who_comes_after_the_end_hears_it_too() -> None:
    hub, source, viewer = Hub(), Listener(), Listener()
    hub.publish(captions("f"))
    hub.end(DONE)
    hub.attach_source(source.outbox, READY, 0)
    hub.attach_viewer(viewer.outbox, READY)
    for listener in (source, viewer):
        messages = await listener.heard()
        assert messages[-1] == DONE
        assert listener.wire.closed == (1000, "done")


async def test_a_failure_is_explained_to_the_source_and_hinted_to_viewers() -> None:
    hub, source, viewer = Hub(), Listener(), Listener()
    hub.attach_source(source.outbox, READY, 0)
    hub.attach_viewer(viewer.outbox, READY)
    hub.fail(RefusalError(CloseCode.BAD_AUDIO, "not_a_number", "m", "r"))
    assert ErrorReport("not_a_number", "m", "r") in await source.heard()
    assert source.wire.closed == (1003, "not_a_number")
    last = (await viewer.heard())[-1]
    assert isinstance(last, ErrorReport)
    assert last.code == "stream_failed"
    assert viewer.wire.closed == (1011, "stream_failed")


async def test_a_failure_without_a_source_reaches_the_viewers() -> None:
    hub, viewer = Hub(), Listener()
    hub.attach_viewer(viewer.outbox, READY)
    hub.fail(RefusalError(CloseCode.INTERNAL, "internal", "m", "r"))
    await viewer.heard()
    assert viewer.wire.closed == (1011, "stream_failed")


async def test_a_viewer_that_left_hears_nothing() -> None:
    hub, viewer = Hub(), Listener()
    hub.attach_viewer(viewer.outbox, READY)
    assert hub.n_viewers == 1
    hub.detach_viewer(viewer.outbox)
    hub.publish(captions("f"))
    assert hub.n_viewers == 0
    assert await viewer.heard() == [READY]


@pytest.mark.parametrize("kind", ["p", "f"])
async def test_each_caption_is_kept_as_it_was_sent(kind: str) -> None:
    hub, source = Hub(), Listener()
    hub.publish(captions(kind))
    hub.attach_source(source.outbox, READY, 0)
    assert await source.heard() == [READY, replace(FIRST, is_final=kind == "f")]


class Follower:
    """A part of the server that keeps what it hears, as events."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def begin(self, ready: Ready, past: Iterable[bytes]) -> None:
        self.heard += [ready, *map(bytes.decode, past)]

    def hear(self, said: Said) -> None:
        self.heard.append(said.event)

    def report(self, progress: Progress) -> None:
        self.heard.append(progress)

    def end(self, done: Done) -> None:
        self.heard.append(done)

    def fail(self, refusal: RefusalError) -> None:
        self.heard.append(refusal.code)


def test_a_follower_hears_what_viewers_hear_and_is_none() -> None:
    hub, follower = Hub(), Follower()
    hub.attach_follower(follower, READY)
    change = SpeechChange(is_on=True, at_ms=0)
    hub.publish(said(change, Notice("c", "m"), FIRST))
    hub.report(Progress(1, 16, 1, 0))
    hub.end(DONE)
    assert follower.heard == [READY, change, FIRST, DONE]
    assert hub.n_viewers == 0


def test_a_follower_hears_that_a_stream_failed() -> None:
    hub, follower = Hub(), Follower()
    hub.publish(captions("f"))
    hub.attach_follower(follower, READY)
    hub.fail(RefusalError(CloseCode.INTERNAL, "internal", "m", "r"))
    assert follower.heard[0] == READY
    assert follower.heard[-1] == "stream_failed"
    assert len(follower.heard) == 3
