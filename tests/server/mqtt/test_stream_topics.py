from __future__ import annotations

import json

from audiokv.server.mqtt.stream_topics import Source, StreamTopics, json_payload
from audiokv.server.mqtt.topics import Topics
from tests.server.mqtt.saying import caption

TOPICS = StreamTopics(Topics("captions/v1", "kitchen"))
SOURCE = Source("s-1", {"caller": "+49"})


def test_a_final_waits_for_the_broker_and_expires_after_an_hour() -> None:
    (message,) = TOPICS.caption(SOURCE, caption(is_final=True), b"packed")
    assert message.topic == "captions/v1/kitchen/s-1/final"
    assert (message.payload, message.stream) == (b"packed", "s-1")
    assert (message.qos, message.is_retained, message.expiry_s) == (1, False, 3_600)


def test_a_partial_does_not_wait_and_expires_after_seconds() -> None:
    (message,) = TOPICS.caption(SOURCE, caption(is_final=False), b"packed")
    assert message.topic == "captions/v1/kitchen/s-1/partial"
    assert (message.payload, message.stream) == (b"packed", "s-1")
    assert (message.qos, message.is_retained, message.expiry_s) == (0, False, 5)


def test_a_live_stream_is_retained_with_its_metadata() -> None:
    message = TOPICS.opened(SOURCE, "whisper")
    assert message.topic == "captions/v1/kitchen/s-1/state"
    assert (message.qos, message.is_retained, message.stream) == (1, True, "s-1")
    assert json.loads(message.payload) == {
        "state": "live",
        "stream": "s-1",
        "model": "whisper",
        "metadata": {"caller": "+49"},
    }
    assert "metadata" not in json.loads(TOPICS.opened(Source("s-2"), "whisper").payload)


def test_the_end_is_told_and_then_forgotten_by_the_broker() -> None:
    end, clearing = TOPICS.over("s-1", {"state": "ended", "segments": 3})
    assert json.loads(end.payload) == {"state": "ended", "segments": 3, "stream": "s-1"}
    assert not end.is_retained
    assert (clearing.payload, clearing.is_retained) == (b"", True)
    assert end.topic == clearing.topic == "captions/v1/kitchen/s-1/state"
    assert end.qos == clearing.qos == 1


def test_text_of_any_language_stays_readable() -> None:
    assert json_payload({"text": "日本 ü"}) == '{"text":"日本 ü"}'.encode()
