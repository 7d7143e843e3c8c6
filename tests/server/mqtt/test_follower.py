from __future__ import annotations

import json
from typing import TYPE_CHECKING

from audiokv.server.mqtt.follower import StreamFollower
from audiokv.server.mqtt.stream_topics import Source, StreamTopics
from audiokv.server.mqtt.topics import Topics
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.wire import pack
from audiokv.server.worker import Said
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.messages import Done, Limits, Progress, Ready
from tests.server.mqtt.saying import caption

if TYPE_CHECKING:
    from audiokv.server.mqtt.unsent import Publication

READY = Ready("s-1", "whisper", ("en",), Limits(1, 1.0, 1.0, 1))
CAPTION = caption()


class Following:
    """A follower and what came of it."""

    def __init__(self) -> None:
        self.published: list[Publication] = []
        self.n_over = 0
        topics = StreamTopics(Topics("c", "i"))
        self.follower = StreamFollower(
            Source("s-1"),
            topics,
            [topics, topics],
            publish=self.published.append,
            on_over=self.note_over,
        )
        self.follower.begin(READY, [])

    def note_over(self) -> None:
        self.n_over += 1

    def bodies(self) -> list[tuple[str, bytes]]:
        return [(p.topic.rpartition("/")[2], p.payload) for p in self.published]


def test_a_stream_is_live_as_soon_as_it_opens() -> None:
    following = Following()
    live = {"state": "live", "stream": "s-1", "model": "whisper"}
    assert [json.loads(p.payload) for p in following.published] == [live]
    assert following.published[0].is_retained
    assert following.follower.live_state().payload == following.published[0].payload


def test_captions_go_through_every_mapping_and_nothing_else_is_published() -> None:
    following = Following()
    del following.published[:]
    for event in (SpeechChange(is_on=True, at_ms=0), CAPTION):
        following.follower.hear(Said(event, pack(event)))
    following.follower.report(Progress(1, 1, 1, 1))
    assert following.bodies() == [("final", pack(CAPTION))] * 2


def test_the_end_is_told_once() -> None:
    following = Following()
    del following.published[:]
    following.follower.end(Done(4_000, 2))
    (_, end), clearing = following.bodies()
    assert json.loads(end) == {
        "state": "ended",
        "received_ms": 4_000,
        "segments": 2,
        "stream": "s-1",
    }
    assert clearing == ("state", b"")
    assert following.n_over == 1


def test_a_failure_is_told_by_its_code_only() -> None:
    following = Following()
    del following.published[:]
    following.follower.fail(RefusalError(CloseCode.INTERNAL, "stream_failed", "secret", "more"))
    (_, end), clearing = following.bodies()
    assert json.loads(end) == {"state": "failed", "code": "stream_failed", "stream": "s-1"}
    assert clearing == ("state", b"")
    assert following.n_over == 1


def test_a_server_that_goes_away_says_so_of_its_streams() -> None:
    following = Following()
    end, clearing = following.follower.stopped()
    assert json.loads(end.payload) == {"state": "stopped", "stream": "s-1"}
    assert (clearing.payload, clearing.is_retained) == (b"", True)
    assert following.n_over == 0
