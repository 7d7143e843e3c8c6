from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.worker import Report, Request
from audiokv.streaming.messages import Done, Progress, Ready
from tests.server.test_hub import Follower
from tests.server.test_stream_registry import DONE, START, Rig

if TYPE_CHECKING:
    from audiokv.server.live_stream import LiveStream


class Publisher:
    """Gives every stream a listener."""

    def __init__(self) -> None:
        self.listeners: dict[str, Follower] = {}
        self.known: list[tuple[str, dict[str, str]]] = []

    def open_listener(self, stream: LiveStream) -> Follower:
        self.known.append((stream.name, dict(stream.metadata)))
        return self.listeners.setdefault(stream.name, Follower())


def test_a_follower_hears_every_stream_that_opens_from_then_on() -> None:
    rig, publisher = Rig(max_viewers=0), Publisher()
    rig.open()
    rig.registry.follow(publisher.open_listener)
    stream = rig.registry.open(START, rig.outbox(), {"call": "42"})
    assert publisher.known == [(stream.name, {"call": "42"})]
    (listener,) = publisher.listeners.values()
    (ready,) = listener.heard
    assert isinstance(ready, Ready)
    assert (ready.stream, ready.resume_token) == (stream.name, None)
    stream.take_report(DONE)
    assert listener.heard[1:] == [Done(0, 0)]
    assert rig.registry.n_viewers == 0


def test_several_followers_hear_the_same() -> None:
    rig, publishers = Rig(), [Publisher(), Publisher()]
    for publisher in publishers:
        rig.registry.follow(publisher.open_listener)
    stream, _ = rig.open()
    refusal = RefusalError(CloseCode.INTERNAL, "internal", "m", "r")
    stream.take_report(Report((), 0, failure=refusal))
    for publisher in publishers:
        assert publisher.listeners[stream.name].heard[1:] == ["stream_failed"]


def test_a_source_that_cannot_come_back_leaves_a_stream_that_ends() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    stream.accept(b"x")
    rig.registry.leave_for_good(stream, outbox)
    assert rig.worker.commands == [Request.STOP]
    assert stream.hub.source is None
    assert rig.counts() == (1, 1, 0)
    stream.take_report(DONE)
    assert rig.counts() == (0, 0, 0)
    assert not rig.registry._by_token
    rig.registry.leave_for_good(stream, outbox)


def test_a_stream_that_was_over_is_forgotten_with_its_source() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    stream.take_report(DONE)
    rig.registry.leave_for_good(stream, outbox)
    assert rig.counts() == (0, 0, 0)


def test_a_stream_without_hope_of_its_source_gives_way_at_once() -> None:
    rig = Rig()
    (stream, outbox), _ = rig.open(), rig.open()
    rig.registry.leave_for_good(stream, outbox)
    rig.open()
    assert stream.is_over


def test_only_the_source_itself_can_leave() -> None:
    rig = Rig()
    stream, _ = rig.open()
    rig.registry.leave_for_good(stream, Follower())
    assert rig.worker.commands == []
    assert isinstance(stream.progress(), Progress)
