from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Change,
    Command,
    Event,
    Finalize,
    Finalized,
    Opening,
    Reply,
)
from audiokv.server.protocols.openai_realtime import IDLE_TIMEOUT_S, OpenAIRealtimeDialect
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import Done
from tests.server.protocols.events import READY, caption, progress
from tests.server.protocols.fuzzing import ANYTHING, FUZZED, objects

OFF = SpeechChange(is_on=False, at_ms=400)


def opening(headers: dict[str, str] | None = None, **query: str) -> Opening:
    return Opening(
        "/v1/realtime",
        {name: (value,) for name, value in query.items()},
        headers or {},
        model="scripted",
        languages=frozenset({"de", "en"}),
        pause_ms=450,
    )


def opened(**headers: str) -> OpenAIRealtimeDialect:
    dialect = OpenAIRealtimeDialect("sess_1")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    (created,) = dialect.open(opening(named, intent="transcription"))
    assert isinstance(created, Reply)
    return dialect


def sent(commands: list[Command]) -> list[dict[str, Any]]:
    return [json.loads(command.message) for command in commands if isinstance(command, Reply)]


def told(dialect: OpenAIRealtimeDialect, *events: Event) -> list[dict[str, Any]]:
    return [json.loads(message) for event in events for message in dialect.say(event)]


def ask(dialect: OpenAIRealtimeDialect, kind: str, **fields: object) -> list[Command]:
    return dialect.hear(json.dumps({"type": kind, **fields}))


def error_of(commands: list[Command]) -> dict[str, Any]:
    (event,) = sent(commands)
    assert event["type"] == "error"
    return dict(event["error"])


def append(dialect: OpenAIRealtimeDialect, audio: bytes = b"abcd") -> list[Command]:
    encoded = base64.b64encode(audio).decode()
    return ask(dialect, "input_audio_buffer.append", audio=encoded)


def test_the_session_is_created_with_what_is_in_effect() -> None:
    dialect = OpenAIRealtimeDialect("sess_1")
    (event,) = sent(dialect.open(opening()))
    assert event["type"] == "session.created"
    assert event["session"]["id"] == "sess_1"
    assert event["session"]["audio"]["input"]["transcription"]["model"] == "scripted"
    assert dialect.idle_timeout_s == IDLE_TIMEOUT_S


@pytest.mark.parametrize(
    "headers",
    [
        {"openai_beta": "realtime=v1"},
        {"sec_websocket_protocol": "realtime, openai-beta.realtime-v1"},
    ],
)
def test_the_beta_has_its_own_words(headers: dict[str, str]) -> None:
    dialect = OpenAIRealtimeDialect("sess_1")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    (event,) = sent(dialect.open(opening(named)))
    assert event["type"] == "transcription_session.created"
    assert event["session"]["input_audio_format"] == "pcm16"
    kinds = [e["type"] for e in told(dialect, caption("hi"), OFF, progress(2_000))]
    assert "conversation.item.created" in kinds
    assert "conversation.item.added" not in kinds


def test_another_intent_is_refused() -> None:
    with pytest.raises(MessageError, match="conversation"):
        OpenAIRealtimeDialect("s").open(opening(intent="conversation"))


def test_audio_begins_the_stream_as_the_session_says() -> None:
    dialect = opened()
    session = {"audio": {"input": {"transcription": {"language": "de", "prompt": "Anna"}}}}
    (event,) = sent(ask(dialect, "session.update", session=session))
    assert event["type"] == "session.updated"
    assert event["session"]["audio"]["input"]["transcription"]["language"] == "de"
    begin, audio = append(dialect)
    assert begin == Begin(AudioFormat(Encoding.PCM_S16LE, 24_000), "de", "Anna")
    assert audio == Audio(b"abcd")
    assert append(dialect, b"ef") == [Audio(b"ef")]
    assert append(dialect, b"") == []


def test_wishes_change_in_mid_stream_and_the_format_does_not() -> None:
    dialect = opened()
    append(dialect)
    session: dict[str, Any] = {"audio": {"input": {"transcription": {"language": "de"}}}}
    assert ask(dialect, "session.update", session=session)[0] == Change("de", "")
    session = {"audio": {"input": {"transcription": {}}}}
    assert ask(dialect, "session.update", session=session)[0] == Change("auto", "")
    session = {"audio": {"input": {"format": {"type": "audio/pcmu"}}}}
    assert error_of(ask(dialect, "session.update", session=session))["code"] == "late_format"


def test_the_betas_update_is_understood() -> None:
    dialect = opened()
    session = {"input_audio_format": "g711_ulaw", "turn_detection": None}
    (event,) = sent(ask(dialect, "transcription_session.update", session=session))
    assert event["type"] == "transcription_session.updated"
    assert append(dialect)[0] == Begin(AudioFormat(Encoding.MULAW, 8_000))


def test_a_turn_is_told_with_events_of_their_own_number() -> None:
    dialect = opened()
    events = told(dialect, READY, SpeechChange(is_on=True, at_ms=90), caption("hi"), OFF)
    assert told(dialect, progress(899)) == []
    events += told(dialect, progress(900))
    assert [event["type"] for event in events] == [
        "input_audio_buffer.speech_started",
        "conversation.item.input_audio_transcription.delta",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
    ]
    names = [event["event_id"] for event in events]
    assert len(set(names)) == len(names)


def test_a_commit_finalizes_and_its_item_is_completed() -> None:
    dialect = opened()
    session = {"audio": {"input": {"turn_detection": None}}}
    ask(dialect, "session.update", session=session)
    append(dialect)
    commands = ask(dialect, "input_audio_buffer.commit")
    assert commands[-1] == Finalize()
    assert sent(commands)[0]["type"] == "input_audio_buffer.committed"
    events = told(dialect, caption("hi"), Finalized())
    assert events[-1]["transcript"] == "hi"


def test_a_turn_as_pipecat_asks_for_it() -> None:
    dialect = opened()
    session = {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
                "turn_detection": None,
            }
        },
    }
    (updated,) = sent(ask(dialect, "session.update", session=session))
    assert updated["type"] == "session.updated"
    append(dialect)
    ask(dialect, "input_audio_buffer.commit")
    told(dialect, caption("hi"))
    (completed,) = told(dialect, Finalized())
    assert completed["type"] == "conversation.item.input_audio_transcription.completed"
    assert completed["transcript"] == "hi"


def test_a_commit_of_nothing_is_an_error() -> None:
    dialect = opened()
    error = error_of(ask(dialect, "input_audio_buffer.commit", event_id="mine"))
    assert error["code"] == "input_audio_buffer_commit_empty"
    assert error["event_id"] == "mine"
    append(dialect)
    ask(dialect, "input_audio_buffer.commit")
    error_of(ask(dialect, "input_audio_buffer.commit"))


def test_a_clear_forgets_what_was_sent() -> None:
    dialect = opened()
    assert [e["type"] for e in sent(ask(dialect, "input_audio_buffer.clear"))] == [
        "input_audio_buffer.cleared"
    ]
    append(dialect)
    assert ask(dialect, "input_audio_buffer.clear")[0] == Finalize()
    assert told(dialect, caption("hi"), Finalized()) == []


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"abcd", "binary_message"),
        ("hello", "bad_json"),
        ('{"type":"response.create"}', "unknown_type"),
        ('{"type":"input_audio_buffer.append"}', "bad_audio"),
        ('{"type":"input_audio_buffer.append","audio":"a"}', "bad_audio"),
        ('{"type":"input_audio_buffer.append","audio":"ä"}', "bad_audio"),
        ('{"type":"session.update"}', "bad_session"),
        ('{"type":"session.update","session":{"type":"realtime"}}', "bad_option"),
    ],
)
def test_an_error_is_answered_and_the_session_goes_on(message: str | bytes, code: str) -> None:
    dialect = opened()
    error = error_of(dialect.hear(message))
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert error["message"]
    assert append(dialect)


def test_the_end_of_the_stream_completes_the_turn() -> None:
    dialect = opened()
    events = told(dialect, caption("hi"), Done(1_000, 1))
    assert events[-1]["transcript"] == "hi"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (CloseCode.BAD_MESSAGE, "invalid_request_error"),
        (CloseCode.FULL, "rate_limit_error"),
        (CloseCode.INTERNAL, "server_error"),
    ],
)
def test_a_refusal_is_an_error_too(code: CloseCode, kind: str) -> None:
    farewell = opened().refuse(RefusalError(code, "x", "What.", "How."))
    (event,) = map(json.loads, farewell.messages)
    assert event["error"]["type"] == kind
    assert event["error"]["message"] == "What. How."
    assert farewell.close_code == code


KINDS = [
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
]
MESSAGES = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=20),
    ANYTHING.map(json.dumps),
    st.builds(
        lambda kind, fields: json.dumps({**fields, "type": kind}),
        st.sampled_from(KINDS),
        objects("audio", "session", "event_id"),
    ),
    st.builds(
        lambda session: json.dumps({"type": "session.update", "session": session}),
        objects("audio", "type", "include"),
    ),
)


@FUZZED
@given(st.lists(MESSAGES, min_size=2, max_size=6))
def test_whatever_comes_is_answered(messages: list[str | bytes]) -> None:
    dialect = opened()
    for message in messages:
        for command in dialect.hear(message):
            if isinstance(command, Reply):
                assert json.loads(command.message)["event_id"]
