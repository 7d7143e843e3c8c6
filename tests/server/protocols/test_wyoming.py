from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Begin, Command, Event, Opening, Reply, Stop
from audiokv.server.protocols.wyoming import WyomingDialect
from audiokv.server.protocols.wyoming_events import EventReader, WyomingEvent
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from tests.server.protocols.events import caption, progress
from tests.server.protocols.fuzzing import FUZZED, objects

OPENING = Opening(model="scripted", languages=frozenset({"en", "de"}))
SHAPE: dict[str, Any] = {"rate": 16_000, "width": 2, "channels": 1}


def opened() -> WyomingDialect:
    dialect = WyomingDialect()
    assert dialect.open(OPENING) == []
    return dialect


def framed(kind: str, data: dict[str, Any], payload: bytes = b"") -> bytes:
    header = {"type": kind, "data": data, "payload_length": len(payload)}
    return json.dumps(header).encode() + b"\n" + payload


def ask(dialect: WyomingDialect, kind: str, payload: bytes = b"", **data: Any) -> list[Command]:
    return dialect.hear(framed(kind, data, payload))


def read(messages: list[str | bytes]) -> list[WyomingEvent]:
    assert all(isinstance(message, bytes) for message in messages)
    return EventReader().push(b"".join(m for m in messages if isinstance(m, bytes)))


def told(dialect: WyomingDialect, *events: Event) -> list[WyomingEvent]:
    return [event for said in events for event in read(dialect.say(said))]


def test_a_question_is_answered_with_what_is_served() -> None:
    (reply,) = ask(opened(), "describe")
    assert isinstance(reply, Reply)
    (info,) = read([reply.message])
    assert info.kind == "info"
    asr: Any = info.data["asr"]
    assert asr[0]["supports_transcript_streaming"] is True
    assert asr[0]["models"][0]["name"] == "scripted"
    assert asr[0]["models"][0]["languages"] == ["de", "en"]


@pytest.mark.parametrize("text", ["", "here"])
def test_a_ping_is_answered(text: str) -> None:
    data: dict[str, Any] = {"text": text} if text else {}
    (reply,) = ask(opened(), "ping", **data)
    assert isinstance(reply, Reply)
    assert read([reply.message]) == [WyomingEvent("pong", data)]


def test_an_utterance_is_a_stream() -> None:
    dialect = opened()
    wishes: dict[str, Any] = {"language": "en-GB", "name": "scripted", "vad_sensitivity": "relaxed"}
    names: dict[str, Any] = {"transcript_names": ["Anna"], "transcript_terms": ["snuffle"]}
    assert ask(dialect, "transcribe", context={"a": 1}, **wishes, **names) == []
    begin = Begin(AudioFormat(), "en", "Anna, snuffle")
    assert ask(dialect, "audio-start", timestamp=0, **SHAPE) == [begin]
    assert ask(dialect, "audio-chunk", b"abcd", timestamp=0, **SHAPE) == [Audio(b"abcd")]
    assert ask(dialect, "audio-stop", timestamp=10) == [Stop()]


def test_a_chunk_alone_begins_the_stream() -> None:
    begin, audio = ask(opened(), "audio-chunk", b"abcd", **{**SHAPE, "rate": 22_050, "channels": 2})
    assert begin == Begin(AudioFormat(sample_rate_hz=22_050, channels=2))
    assert audio == Audio(b"abcd")


def test_several_events_may_come_in_one_piece_and_unknown_ones_are_passed_over() -> None:
    stream = framed("audio-start", SHAPE) + framed("detect", {}) + framed("audio-stop", {})
    assert opened().hear(stream) == [Begin(AudioFormat()), Stop()]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("audio-start", {"width": 4}),
        ("audio-start", {"rate": 4_000}),
        ("audio-start", {"channels": 3}),
        ("audio-start", {"codec": "opus"} | {"width": 1}),
        ("transcribe", {"name": "whisper-large"}),
        ("transcribe", {"voice": "alloy"}),
        ("transcribe", {"transcript_names": "Anna"}),
    ],
)
def test_what_is_not_supported_is_refused_by_name(kind: str, data: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=list(data)[-1]):
        ask(opened(), kind, **data)


def test_the_format_and_the_wishes_hold_for_the_whole_utterance() -> None:
    dialect = opened()
    ask(dialect, "audio-start", **SHAPE)
    with pytest.raises(MessageError, match="format changed"):
        ask(dialect, "audio-chunk", b"ab", **{**SHAPE, "rate": 8_000})
    with pytest.raises(MessageError, match="after the audio"):
        ask(dialect, "transcribe")


def test_committed_words_come_as_chunks_and_then_as_a_whole() -> None:
    dialect = opened()
    assert told(dialect, caption("hi you", is_final=False)) == []
    events = told(
        dialect,
        caption("hi you", is_final=False, n_final=1),
        progress(500),
        caption("hi you"),
        caption("there", segment=1),
    )
    assert [(e.kind, e.data.get("text")) for e in events] == [
        ("transcript-start", None),
        ("transcript-chunk", "hi"),
        ("transcript-chunk", " you"),
        ("transcript-chunk", " there"),
    ]
    assert events[0].data == {"language": "en"}
    assert read(dialect.done().messages) == [
        WyomingEvent("transcript", {"text": "hi you there", "language": "en"}),
        WyomingEvent("transcript-stop"),
    ]


def test_where_nothing_was_said_the_transcript_is_empty() -> None:
    kinds = [(e.kind, e.data.get("text")) for e in read(opened().done().messages)]
    assert kinds == [("transcript-start", None), ("transcript", ""), ("transcript-stop", None)]


def test_speech_is_told() -> None:
    events = told(
        opened(), SpeechChange(is_on=True, at_ms=90), SpeechChange(is_on=False, at_ms=400)
    )
    assert events == [
        WyomingEvent("voice-started", {"timestamp": 90}),
        WyomingEvent("voice-stopped", {"timestamp": 400}),
    ]


def test_a_refusal_is_an_error() -> None:
    farewell = opened().refuse(RefusalError(CloseCode.FULL, "full", "What.", "How."))
    assert read(farewell.messages) == [
        WyomingEvent("error", {"text": "What. How.", "code": "full"})
    ]


KINDS = ["transcribe", "audio-start", "audio-chunk", "audio-stop", "ping", "describe", "x"]
FRAMES = st.builds(
    framed,
    st.sampled_from(KINDS),
    objects("rate", "width", "channels", "language", "name", "text", "transcript_names"),
    st.binary(max_size=6),
)


@FUZZED
@given(st.lists(FRAMES | st.binary(max_size=30), min_size=2, max_size=6))
def test_whatever_comes_is_commands_or_a_message_error(pieces: list[bytes]) -> None:
    dialect = opened()
    with suppress(MessageError):
        for piece in pieces:
            dialect.hear(piece)
