from __future__ import annotations

import io
import json
import wave
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.mqtt.desk import Answer, Feed, Open
from audiokv.server.mqtt.hermes import TEXT_CAPTURED
from audiokv.server.mqtt.hermes_listening import (
    ERROR,
    STOP,
    HermesDialect,
    HermesRoute,
    Listening,
    read_listening,
    read_wav,
)
from audiokv.server.protocols.dialect import Audio, Begin, Opening, Stop
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from tests.server.mqtt.saying import caption

WISH = Listening("hall", "d-1", "de", stops_on_silence=True)
LONG_WISH = Listening("hall", "d-1", None, stops_on_silence=False)


def wav(audio: bytes, rate_hz: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate_hz)
        writer.writeframes(audio)
    return file.getvalue()


def told(messages: list[str | bytes]) -> list[tuple[str, dict[str, Any]]]:
    pairs = [str(message).partition("\n") for message in messages]
    return [(topic, json.loads(body)) for topic, _, body in pairs]


def begun(wish: Listening) -> HermesDialect:
    dialect = HermesDialect(wish)
    assert dialect.open(Opening()) == []
    assert dialect.hear("go") == []
    dialect.hear(wav(b"\0\0"))
    return dialect


# What comes in


def test_a_wish_is_read_with_the_defaults_of_hermes() -> None:
    assert read_listening(b"") == Listening("default", "", None, stops_on_silence=True)
    body = {"siteId": "hall", "sessionId": "d-1", "lang": "de_DE", "stopOnSilence": False, "x": 1}
    assert read_listening(json.dumps(body).encode()) == Listening(
        "hall", "d-1", "de", stops_on_silence=False
    )


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"[]",
        b'{"siteId":1}',
        b'{"siteId":"a/b"}',
        b'{"siteId":""}',
        b'{"sessionId":"\\n"}',
        b'{"sessionId":"' + b"x" * 129 + b'"}',
        b'{"stopOnSilence":"no"}',
    ],
)
def test_a_bad_wish_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        read_listening(body)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_wish_or_a_message_error(body: bytes) -> None:
    try:
        read_listening(body)
    except MessageError:
        return


@pytest.mark.parametrize("fmt", [AudioFormat(), AudioFormat(sample_rate_hz=8_000, channels=2)])
def test_a_frame_says_what_format_it_has(fmt: AudioFormat) -> None:
    audio = bytes(range(40))
    assert read_wav(wav(audio, fmt.sample_rate_hz, fmt.channels)) == (fmt, audio)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", "bad_wav"),
        (b"RIFF\0\0\0\0WAVE", "bad_wav"),
        (wav(b"\0", width=1), "bad_wav"),
        (wav(b"\0\0", rate_hz=4_000), "bad_sample_rate"),
        (wav(bytes(6), channels=3), "bad_channels"),
    ],
)
def test_a_frame_that_cannot_be_heard_is_refused(frame: bytes, code: str) -> None:
    with pytest.raises(MessageError) as caught:
        read_wav(frame)
    assert caught.value.code == code


@given(st.binary(max_size=80), st.integers(0, 60), st.binary(max_size=8))
def test_a_damaged_frame_is_audio_or_a_message_error(audio: bytes, at: int, damage: bytes) -> None:
    frame = bytearray(wav(audio))
    frame[at : at + len(damage)] = damage
    try:
        fmt, heard = read_wav(bytes(frame))
    except MessageError:
        return
    assert isinstance(fmt, AudioFormat)
    assert len(heard) <= len(frame)


# A session


def test_the_first_frame_begins_the_stream() -> None:
    dialect = HermesDialect(WISH)
    begin, audio = dialect.hear(wav(b"\1\0", rate_hz=8_000))
    assert begin == Begin(
        AudioFormat(sample_rate_hz=8_000),
        language="de",
        metadata={"siteId": "hall", "sessionId": "d-1"},
    )
    assert audio == Audio(b"\1\0")
    assert dialect.hear(wav(b"\2\0", rate_hz=8_000)) == [Audio(b"\2\0")]
    with pytest.raises(MessageError, match="format"):
        dialect.hear(wav(b"\2\0"))
    assert dialect.hear(STOP) == [Stop()]


def test_the_first_words_are_the_text_where_silence_ends_the_session() -> None:
    dialect = begun(WISH)
    assert dialect.say(caption(is_final=False)) == []
    assert dialect.say(SpeechChange(is_on=True, at_ms=0)) == []
    assert dialect.say(caption("")) == []
    ((topic, body),) = told(dialect.say(caption("switch it on")))
    assert topic == TEXT_CAPTURED
    assert (body["text"], body["siteId"], body["sessionId"]) == ("switch it on", "hall", "d-1")
    assert len(body["asrTokens"][0]) == 3
    assert dialect.say(caption("and more")) == []
    assert dialect.done().messages == []


def test_all_words_are_the_text_where_it_does_not() -> None:
    dialect = begun(LONG_WISH)
    assert dialect.say(caption("one")) == []
    assert dialect.say(caption("two", start_ms=2_000)) == []
    ((topic, body),) = told(dialect.done().messages)
    assert (topic, body["text"], body["lang"]) == (TEXT_CAPTURED, "one two", "en")
    assert body["seconds"] == 2.5


def test_a_session_without_words_has_an_empty_text() -> None:
    dialect = HermesDialect(Listening("hall", "", "de", stops_on_silence=True))
    assert dialect.hear(STOP) == [Stop()]
    ((topic, body),) = told(dialect.done().messages)
    assert (topic, body["text"], body["lang"], body["sessionId"]) == (TEXT_CAPTURED, "", "de", None)


def test_a_refusal_is_an_error_of_hermes() -> None:
    farewell = HermesDialect(WISH).refuse(RefusalError(CloseCode.FULL, "full", "All taken.", ""))
    assert told(farewell.messages) == [
        (
            ERROR,
            {"error": "All taken.", "siteId": "hall", "context": "full", "sessionId": "d-1"},
        )
    ]


# The route


def test_each_site_has_a_session_of_its_own() -> None:
    route = HermesRoute()
    (opened,) = route.take("hermes/asr/startListening", b'{"siteId":"hall"}') or []
    assert isinstance(opened, Open)
    frame = route.take("hermes/audioServer/hall/audioFrame", b"wav")
    assert frame == [Feed(opened.key, b"wav")]
    assert route.take("hermes/asr/stopListening", b'{"siteId":"hall"}') == [Feed(opened.key, STOP)]
    (other,) = route.take("hermes/asr/startListening", b"") or []
    assert isinstance(other, Open)
    assert other.key != opened.key
    assert route.sent(opened.key, TEXT_CAPTURED) == [Feed(opened.key, STOP)]
    assert route.sent(opened.key, ERROR) == []


def test_a_site_that_was_switched_off_does_not_listen() -> None:
    route = HermesRoute()
    off = route.take("hermes/asr/toggleOff", b'{"siteId":"hall","reason":"ttsSay"}')
    assert off == [Feed("hermes hall", STOP)]
    assert route.take("hermes/asr/startListening", b'{"siteId":"hall"}') == []
    assert len(route.take("hermes/asr/startListening", b'{"siteId":"attic"}') or []) == 1
    assert route.take("hermes/asr/toggleOn", b'{"siteId":"hall"}') == []
    assert len(route.take("hermes/asr/startListening", b'{"siteId":"hall"}') or []) == 1


def test_what_cannot_be_understood_is_answered_with_an_error() -> None:
    (answer,) = HermesRoute().take("hermes/asr/startListening", b"{") or []
    assert isinstance(answer, Answer)
    assert answer.publication.topic == ERROR
    assert json.loads(answer.publication.payload)["context"] == "bad_json"


@pytest.mark.parametrize(
    "topic",
    ["hermes/asr/textCaptured", "captions/v1/audiokv/status", "hermes/audioServer/hall/play"],
)
def test_topics_of_others_are_left_alone(topic: str) -> None:
    assert HermesRoute().take(topic, b"") is None
