from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Opening, Stop
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.jambonz_speech import JambonzSpeechDialect
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, a_caption, begin_in, messages, survives

WORDS = {"type", "start", "stop", "encoding", "LINEAR16", "sampleRateHz", "options", "hints"}


def start(**changes: Any) -> str:
    values = {
        "type": "start",
        "language": "en-US",
        "format": "raw",
        "encoding": "LINEAR16",
        "interimResults": True,
        "sampleRateHz": 8000,
        "options": {},
    }
    return json.dumps({**values, **changes})


def opened() -> JambonzSpeechDialect:
    dialect = JambonzSpeechDialect()
    dialect.open(Opening(query={"prompt": ("Knopf",)}))
    return dialect


def test_start_begins_the_stream() -> None:
    dialect = opened()
    begin = begin_in(dialect.hear(start()))
    assert begin.fmt == AudioFormat(sample_rate_hz=8_000)
    assert (begin.language, begin.prompt) == ("en", "Knopf")
    assert dialect.hear(b"\x01\x00") == [Audio(b"\x01\x00")]


def test_rate_and_encoding_are_those_of_start() -> None:
    begin = begin_in(opened().hear(start(encoding="MULAW", sampleRateHz=16_000)))
    assert begin.fmt == AudioFormat(Encoding.MULAW, 16_000)


def test_hints_are_the_prompt_where_there_is_none() -> None:
    hints = {"hints": ["Zahnrad", {"phrase": "Ölwanne", "boost": 3}, {"boost": 1}, 7]}
    dialect = JambonzSpeechDialect()
    dialect.open(Opening())
    assert begin_in(dialect.hear(start(options=hints))).prompt == "Zahnrad, Ölwanne"
    assert begin_in(opened().hear(start(options=hints))).prompt == "Knopf"


def test_stop_ends_the_stream_and_later_audio_is_left_out() -> None:
    dialect = opened()
    dialect.hear(start())
    assert dialect.hear('{"type":"stop"}') == [Stop()]
    assert dialect.hear(b"\x01\x00") == []


def test_a_stop_without_a_start_just_ends_the_connection() -> None:
    assert opened().hear('{"type":"stop"}') == [Stop()]


def test_captions_go_back_as_transcriptions() -> None:
    dialect = opened()
    dialect.hear(start())
    (final,) = dialect.say(a_caption())
    assert json.loads(final) == {
        "type": "transcription",
        "is_final": True,
        "alternatives": [{"transcript": "one two", "confidence": 0.7}],
        "language": "en-US",
        "channel": 1,
    }
    (partial,) = dialect.say(a_caption(is_final=False))
    assert json.loads(partial)["is_final"] is False
    assert dialect.say(SpeechChange(is_on=True, at_ms=3)) == []


def test_partial_captions_stay_here_unless_asked_for() -> None:
    dialect = opened()
    dialect.hear(start(interimResults=False))
    assert dialect.say(a_caption(is_final=False)) == []


def test_a_detected_language_is_told_where_none_was_given() -> None:
    dialect = opened()
    dialect.hear(start(language=None))
    assert json.loads(dialect.say(a_caption())[0])["language"] == "en"


def test_a_refusal_is_told_as_an_error() -> None:
    refusal = RefusalError(CloseCode.FULL, "full", "All streams are taken.", "Try later.")
    farewell = opened().refuse(refusal)
    assert json.loads(farewell.messages[0]) == {
        "type": "error",
        "error": "All streams are taken. Try later.",
    }
    assert farewell.close_code == CloseCode.FULL


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\x01\x00", "start_expected"),
        (start(encoding="opus"), "unsupported_codec"),
        (start(interimResults="yes"), "bad_field"),
    ],
)
def test_a_wrong_beginning_is_refused(message: str | bytes, code: str) -> None:
    with pytest.raises(MessageError) as caught:
        opened().hear(message)
    assert caught.value.code == code


def test_a_second_start_is_refused() -> None:
    dialect = opened()
    dialect.hear(start())
    with pytest.raises(MessageError):
        dialect.hear(start())


@FUZZED
@given(st.lists(messages(WORDS) | st.just(start()), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(JambonzSpeechDialect(), heard)
