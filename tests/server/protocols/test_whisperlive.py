from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect

from audiokv.server.protocols.dialect import Audio, Begin, Command, Event, Opening, Reply, Stop
from audiokv.server.protocols.whisperlive import BACKEND, WhisperLiveDialect
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError
from tests.server.doubles import captions_in, speech, undisturbed
from tests.server.protocols.events import READY, caption, progress
from tests.server.protocols.fuzzing import ANYTHING, FUZZED, objects
from tests.server.running import running_server

# What the client of version 0.10 sends unless it is told otherwise.
STOCK: dict[str, Any] = {
    "uid": "u-1",
    "language": None,
    "task": "transcribe",
    "model": "small",
    "use_vad": True,
    "send_last_n_segments": 10,
    "no_speech_thresh": 0.45,
    "clip_audio": False,
    "same_output_threshold": 10,
    "enable_translation": False,
    "target_language": "fr",
    "hotwords": None,
    "enable_diarization": False,
    "max_speakers": 10,
    "known_speakers": [],
    "word_timestamps": False,
    "initial_prompt": None,
    "vad_parameters": None,
}
FLOAT = AudioFormat(Encoding.PCM_F32LE, 16_000)


def begun(**changes: Any) -> tuple[WhisperLiveDialect, list[Command]]:
    dialect = WhisperLiveDialect()
    assert dialect.open(Opening()) == []
    return dialect, dialect.hear(json.dumps({**STOCK, **changes}))


def told(dialect: WhisperLiveDialect, *events: Event) -> list[dict[str, Any]]:
    return [json.loads(message) for event in events for message in dialect.say(event)]


def texts(message: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(segment["text"], segment["completed"]) for segment in message["segments"]]


def test_the_options_of_the_stock_client_begin_a_stream_without_a_warning() -> None:
    dialect, commands = begun()
    assert commands == [Begin(FLOAT)]
    assert told(dialect, READY) == [{"uid": "u-1", "message": "SERVER_READY", "backend": BACKEND}]
    assert dialect.hear(b"\0\0\0\0") == [Audio(b"\0\0\0\0")]
    assert dialect.hear(b"END_OF_AUDIO") == [Stop()]


def test_wishes_are_read() -> None:
    _, (begin,) = begun(language="de", initial_prompt="Anna", hotwords="snuffle")
    assert begin == Begin(FLOAT, "de", "Anna, snuffle")
    _, (begin,) = begun(audio_format="int16")
    assert begin == Begin(AudioFormat(Encoding.PCM_S16LE, 16_000))


@pytest.mark.parametrize(
    "change", [{"use_vad": False}, {"no_speech_thresh": 0.6}, {"vad_parameters": {"x": 1}}]
)
def test_what_tunes_another_recogniser_is_answered_with_a_warning(change: dict[str, Any]) -> None:
    _, (_, warning) = begun(**change)
    assert isinstance(warning, Reply)
    message = json.loads(warning.message)
    assert message["status"] == "WARNING"
    assert next(iter(change)) in message["message"]


@pytest.mark.parametrize(
    "change",
    [
        {"task": "translate"},
        {"enable_translation": True},
        {"enable_diarization": True},
        {"known_speakers": [{"name": "A"}]},
        {"audio_format": "uint8"},
        {"send_last_n_segments": 0},
        {"uid": 3},
        {"hologram": True},
    ],
)
def test_what_is_not_supported_is_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=next(iter(change))):
        begun(**change)


def test_options_come_first_and_once() -> None:
    with pytest.raises(MessageError, match="not text"):
        WhisperLiveDialect().hear(b"\0\0")
    dialect, _ = begun()
    with pytest.raises(MessageError, match="after the options"):
        dialect.hear("{}")


def test_each_caption_comes_with_those_before() -> None:
    dialect, _ = begun(language="en")
    messages = told(
        dialect,
        caption("hi", is_final=False),
        progress(500),
        caption("hi you"),
        caption("and", is_final=False, segment=1, start_ms=900),
    )
    assert [texts(message) for message in messages] == [
        [("hi", False)],
        [("hi you", True)],
        [("hi you", True), ("and", False)],
    ]
    assert messages[1]["segments"][0] == {
        "start": "0.100",
        "end": "0.300",
        "text": "hi you",
        "completed": True,
    }


def test_no_more_segments_come_than_asked_for() -> None:
    dialect, _ = begun(language="en", send_last_n_segments=2)
    finals = [caption(f"s{i}", segment=i, start_ms=1_000 * i) for i in range(4)]
    assert texts(told(dialect, *finals)[-1]) == [("s2", True), ("s3", True)]
    (partial,) = told(dialect, caption("s4", is_final=False, segment=4, start_ms=9_000))
    assert texts(partial) == [("s3", True), ("s4", False)]
    single, _ = begun(language="en", send_last_n_segments=1)
    told(single, caption("s0"))
    (partial,) = told(single, caption("s1", is_final=False, segment=1))
    assert texts(partial) == [("s1", False)]


def test_a_segment_never_begins_before_the_last_has_ended() -> None:
    dialect, _ = begun(language="en")
    told(dialect, caption("hi you there"))
    (message,) = told(dialect, caption("on", segment=1, start_ms=350))
    first, second = message["segments"]
    assert float(second["start"]) >= float(first["end"])
    assert float(second["end"]) >= float(second["start"])


def test_captions_without_words_are_no_segments() -> None:
    dialect, _ = begun(language="en")
    assert told(dialect, caption("", is_final=False), caption("")) == []


def test_the_language_is_told_once_where_it_was_not_known() -> None:
    dialect, _ = begun()
    messages = told(dialect, caption("hi", is_final=False), caption("hi"))
    assert messages[0] == {"uid": "u-1", "language": "en", "language_prob": 1.0}
    assert ["segments" in message for message in messages] == [False, True, True]


def test_words_and_speakers_come_where_there_are_some() -> None:
    dialect, _ = begun(language="en", word_timestamps=True)
    (message,) = told(dialect, caption("hi", speaker="A"))
    (segment,) = message["segments"]
    assert segment["speaker"] == "A"
    assert segment["words"] == [{"word": "hi", "start": 0.1, "end": 0.2, "probability": 0.5}]


def test_the_end_and_refusals_are_told() -> None:
    dialect, _ = begun()
    assert [json.loads(m) for m in dialect.done().messages] == [
        {"uid": "u-1", "message": "DISCONNECT"}
    ]
    full = RefusalError(CloseCode.FULL, "full", "What.", "How.", retry_after_s=90)
    assert [json.loads(m) for m in dialect.refuse(full).messages] == [
        {"uid": "u-1", "status": "WAIT", "message": 2}
    ]
    bad = RefusalError(CloseCode.BAD_MESSAGE, "x", "What.", "How.")
    assert [json.loads(m) for m in dialect.refuse(bad).messages] == [
        {"uid": "u-1", "status": "ERROR", "message": "What. How."}
    ]


MESSAGES = st.one_of(
    st.text(max_size=30),
    st.binary(max_size=12),
    ANYTHING.map(json.dumps),
    objects(*STOCK, "audio_format").map(lambda changes: json.dumps({**STOCK, **changes})),
)


@FUZZED
@given(st.lists(MESSAGES, min_size=2, max_size=6))
def test_whatever_comes_is_commands_or_a_message_error(messages: list[str | bytes]) -> None:
    dialect = WhisperLiveDialect()
    for message in messages:
        with suppress(MessageError):
            dialect.hear(message)


async def test_a_client_hears_every_line_with_a_server() -> None:
    audio = speech(1, seconds=4)
    floats = (np.frombuffer(audio, "<i2").astype("<f4") / 32_768).tobytes()
    expected = [c.text for c in captions_in(undisturbed(audio)) if c.is_final]
    async with running_server(whisperlive_port=0) as server:
        port = server.other_ports["whisperlive_port"]
        async with connect(f"ws://127.0.0.1:{port}") as client:
            await client.send(json.dumps(STOCK))
            assert json.loads(await client.recv())["message"] == "SERVER_READY"
            for at in range(0, len(floats), 16_384):
                await client.send(floats[at : at + 16_384])
            await client.send(b"END_OF_AUDIO")
            messages = [json.loads(message) async for message in client]
            assert client.close_code == 1000
    assert messages[-1]["message"] == "DISCONNECT"
    lines = [m["segments"] for m in messages if "segments" in m][-1]
    assert [line["text"] for line in lines] == expected
