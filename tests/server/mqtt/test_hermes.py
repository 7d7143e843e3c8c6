from __future__ import annotations

import json
from typing import Any

import pytest

from audiokv.server.mqtt.hermes import PARTIAL_TEXT_CAPTURED, TEXT_CAPTURED, HermesMirror, captured
from audiokv.server.mqtt.stream_topics import Source
from tests.server.mqtt.saying import caption

MIRROR = HermesMirror("kitchen")


def mirrored(source: Source, *, is_final: bool) -> list[tuple[str, dict[str, Any]]]:
    messages = MIRROR.caption(source, caption(is_final=is_final), b"")
    return [(message.topic, json.loads(message.payload)) for message in messages]


def test_a_final_is_a_captured_text() -> None:
    ((topic, body),) = mirrored(Source("s-1"), is_final=True)
    assert topic == "hermes/asr/textCaptured" == TEXT_CAPTURED
    assert body == {
        "text": "hi there",
        "likelihood": 0.625,
        "seconds": 1.0,
        "siteId": "kitchen",
        "sessionId": "s-1",
        "lang": "en",
        "wakewordId": None,
        "asrTokens": [
            [
                {
                    "value": "hi",
                    "confidence": 0.5,
                    "rangeStart": 0,
                    "rangeEnd": 1,
                    "time": {"start": 0.0, "end": 0.5},
                },
                {
                    "value": "there",
                    "confidence": 0.75,
                    "rangeStart": 1,
                    "rangeEnd": 2,
                    "time": {"start": 0.5, "end": 1.0},
                },
            ]
        ],
    }


def test_a_partial_has_a_topic_of_its_own_and_does_not_wait() -> None:
    (message,) = MIRROR.caption(Source("s-1"), caption(is_final=False), b"")
    assert message.topic == "hermes/asr/partialTextCaptured" == PARTIAL_TEXT_CAPTURED
    assert (message.qos, message.expiry_s, message.stream) == (0, 5, "s-1")
    (final,) = MIRROR.caption(Source("s-1"), caption(), b"")
    assert (final.qos, final.expiry_s, final.stream) == (1, 3_600, "s-1")


@pytest.mark.parametrize(
    ("metadata", "labels"),
    [
        ({"device": "mic"}, ("mic", "s-1")),
        ({"siteId": "hall", "sessionId": "d-2"}, ("hall", "d-2")),
        ({"siteId": "hall", "sessionId": ""}, ("hall", "s-1")),
    ],
)
def test_the_site_is_what_the_source_says(
    metadata: dict[str, str], labels: tuple[str, str]
) -> None:
    ((_, body),) = mirrored(Source("s-1", metadata), is_final=False)
    assert (body["siteId"], body["sessionId"]) == labels


def test_a_session_that_hermes_began_answers_for_itself() -> None:
    assert mirrored(Source("s-1", {"siteId": "hall", "sessionId": "d-2"}), is_final=True) == []


def test_no_words_have_no_likelihood() -> None:
    body = json.loads(captured([], "", labels={}))
    assert (body["likelihood"], body["seconds"], body["asrTokens"]) == (0.0, 0.0, [[]])
