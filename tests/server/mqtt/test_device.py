from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.mqtt.desk import Feed, Open
from audiokv.server.mqtt.device import STOP, DeviceDialect, DeviceRoute
from audiokv.server.mqtt.topics import Topics
from audiokv.server.protocols.dialect import Audio, Begin, Opening, Stop
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Notice, SpeechChange
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import Done, Limits, Progress, Ready
from tests.server.mqtt.saying import caption

TOPICS = Topics("captions/v1", "kitchen")
IN = "captions/v1/kitchen/devices/mic"
EVENTS = f"{IN}/events"


def dialect() -> DeviceDialect:
    made = DeviceDialect("mic", TOPICS)
    assert made.open(Opening()) == []
    return made


def said(messages: list[str | bytes]) -> list[tuple[str, dict[str, object]]]:
    pairs = [str(message).partition("\n") for message in messages]
    return [(topic, json.loads(body)) for topic, _, body in pairs]


# The dialect


def test_the_start_is_a_native_one() -> None:
    start = {
        "type": "start",
        "encoding": "mulaw",
        "sample_rate": 8_000,
        "channels": 2,
        "language": "de",
        "prompt": "Anna",
        "profile": "default",
        "channel_labels": ["a", "b"],
    }
    assert dialect().hear(json.dumps(start)) == [
        Begin(
            AudioFormat(Encoding.MULAW, 8_000, 2),
            language="de",
            prompt="Anna",
            profile="default",
            channel_labels=("a", "b"),
            metadata={"device": "mic"},
        )
    ]


def test_auto_means_that_the_language_is_detected() -> None:
    (begin,) = dialect().hear(
        '{"type":"start","encoding":"pcm_s16le","sample_rate":16000,"language":"auto"}'
    )
    assert isinstance(begin, Begin)
    assert begin.language is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nonsense", "bad_json"),
        ('{"type":"stop"}', "start_expected"),
        ('{"type":"start","encoding":"opus","sample_rate":16000}', "unknown_encoding"),
        (
            '{"type":"start","encoding":"alaw","sample_rate":8000,"resume":{"token":"","last_seq":0}}',
            "start_expected",
        ),
    ],
)
def test_a_start_that_is_none_is_refused(text: str, code: str) -> None:
    with pytest.raises(MessageError) as caught:
        dialect().hear(text)
    assert caught.value.code == code


def test_audio_and_stop_are_passed_on() -> None:
    assert dialect().hear(b"\0\1") == [Audio(b"\0\1")]
    assert dialect().hear(STOP) == [Stop()]


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_whatever_comes_is_commands_or_a_message_error(message: str | bytes) -> None:
    try:
        commands = dialect().hear(message)
    except MessageError:
        return
    assert all(isinstance(command, Begin | Audio | Stop) for command in commands)


def test_the_device_hears_the_stream_s_name_warnings_and_the_end() -> None:
    ready = Ready("s-1", "whisper", ("en",), Limits(1, 1.0, 1.0, 1))
    expected = {"type": "ready", "stream": "s-1", "captions": "captions/v1/kitchen/s-1"}
    assert said(dialect().say(ready)) == [(EVENTS, expected)]
    ((topic, notice),) = said(dialect().say(Notice("audio_gap", "m")))
    assert (topic, notice["type"], notice["code"]) == (EVENTS, "warning", "audio_gap")
    ((topic, done),) = said(dialect().say(Done(1_000, 2)))
    assert (topic, done) == (EVENTS, {"type": "done", "received_ms": 1_000, "segments": 2})


def test_captions_and_progress_are_not_repeated_to_the_device() -> None:
    for event in (caption(), Progress(1, 1, 1, 1), SpeechChange(is_on=True, at_ms=0)):
        assert dialect().say(event) == []


def test_a_refusal_is_told() -> None:
    refusal = RefusalError(CloseCode.FULL, "full", "All taken.", "Wait.", retry_after_s=10)
    farewell = dialect().refuse(refusal)
    ((topic, error),) = said(farewell.messages)
    assert (topic, error["type"], error["code"], error["retry_after_s"]) == (
        EVENTS,
        "error",
        "full",
        10,
    )
    assert farewell.close_code == CloseCode.FULL
    assert dialect().done().messages == []


# The route


def test_what_a_device_sends_goes_to_its_own_connection() -> None:
    route = DeviceRoute(TOPICS)
    assert set(route.subscriptions) == {
        f"captions/v1/kitchen/devices/+/{verb}" for verb in ("start", "audio", "stop")
    }
    assert route.take(f"{IN}/stop", b"") == [Feed("device mic", STOP)]
    (feed,) = route.take(f"{IN}/audio", b"\0") or []
    assert isinstance(feed, Feed)
    assert (feed.key, feed.message) == ("device mic", b"\0")
    assert feed.otherwise is not None
    assert feed.otherwise.topic == EVENTS
    assert json.loads(feed.otherwise.payload)["code"] == "no_start"
    assert feed.otherwise.qos == 0  # a device that goes on without a start must not fill the queue
    assert route.sent("device mic", EVENTS) == []


@pytest.mark.parametrize("body", [b"", b'{"type":"start","encoding":"alaw","sample_rate":8000}'])
def test_a_start_opens_a_connection(body: bytes) -> None:
    (opened,) = DeviceRoute(TOPICS).take(f"{IN}/start", body) or []
    assert isinstance(opened, Open)
    assert opened.key == "device mic"
    (begin,) = opened.dialect.hear(opened.message)
    assert isinstance(begin, Begin)
    expected = AudioFormat(Encoding.ALAW, 8_000) if body else AudioFormat()
    assert begin.fmt == expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("captions/v1/other/devices/mic/start", None),
        ("captions/v1/kitchen/status", None),
        (f"{IN}/sing", []),
        (f"captions/v1/kitchen/devices/{'x' * 65}/start", []),
    ],
)
def test_other_topics_are_not_taken(topic: str, expected: object) -> None:
    assert DeviceRoute(TOPICS).take(topic, b"") == expected


def test_a_start_that_is_not_utf_8_is_refused_by_the_dialect() -> None:
    (opened,) = DeviceRoute(TOPICS).take(f"{IN}/start", b"\xff\xfe") or []
    assert isinstance(opened, Open)
    with pytest.raises(MessageError):
        opened.dialect.hear(opened.message)
