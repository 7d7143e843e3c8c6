from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.deepgram import IDLE_TIMEOUT_S, DeepgramDialect
from audiokv.server.protocols.dialect import Audio, Event, Finalize, Finalized, Opening, Stop
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import Done
from tests.server.protocols.events import READY, caption, progress
from tests.server.protocols.fuzzing import ANYTHING, FUZZED

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
OFF = SpeechChange(is_on=False, at_ms=400)
ON = SpeechChange(is_on=True, at_ms=90)


def made() -> DeepgramDialect:
    return DeepgramDialect(can_tell_speakers=False, now=lambda: NOON)


def opened(**query: str) -> DeepgramDialect:
    dialect = made()
    asked = {"encoding": "linear16", "sample_rate": "16000", **query}
    values = {name: (value,) for name, value in asked.items()}
    (begin,) = dialect.open(Opening("/v1/listen", values, model="scripted", pause_ms=450))
    assert begin
    assert dialect.say(READY) == []
    return dialect


def told(dialect: DeepgramDialect, *events: Event) -> list[dict[str, Any]]:
    return [json.loads(message) for event in events for message in dialect.say(event)]


def flags(message: dict[str, Any]) -> tuple[str, bool, bool, bool]:
    text = message["channel"]["alternatives"][0]["transcript"]
    return text, message["is_final"], message["speech_final"], message["from_finalize"]


# What a client sends


def test_messages_are_commands() -> None:
    dialect = opened()
    assert dialect.hear(b"ab") == [Audio(b"ab")]
    assert dialect.hear('{"type":"KeepAlive"}') == []
    assert dialect.hear('{"type":"Finalize"}') == [Finalize()]
    assert dialect.hear('{"type": "CloseStream"}') == [Stop()]
    assert dialect.hear(b"") == [Stop()]


@pytest.mark.parametrize("text", ["", "{}", '{"type":"Configure"}', '{"type":[1]}', "[]", "hi"])
def test_other_messages_are_refused(text: str) -> None:
    with pytest.raises(MessageError):
        opened().hear(text)


MESSAGES = st.one_of(
    st.text(max_size=40),
    st.binary(max_size=20),
    ANYTHING.map(json.dumps),
    ANYTHING.map(lambda value: json.dumps({"type": value})),
    st.sampled_from(['{"type":"Finalize"}', '{"type":"KeepAlive"}', '{"type":"CloseStream"}']),
)


@FUZZED
@given(st.lists(MESSAGES, min_size=2, max_size=6))
def test_whatever_comes_is_commands_or_a_message_error(messages: list[str | bytes]) -> None:
    dialect = opened()
    for message in messages:
        with suppress(MessageError):
            dialect.hear(message)


# What it hears


def test_a_pause_makes_a_final_result_the_end_of_speech() -> None:
    messages = told(opened(), ON, caption("hi", is_final=False), caption("hi"), OFF)
    assert [flags(m) for m in messages] == [("hi", True, True, False)]


def test_interim_results_come_where_asked() -> None:
    dialect = opened(interim_results="true")
    messages = told(dialect, caption("hi", is_final=False), caption("hi you"), OFF)
    assert [flags(m) for m in messages] == [
        ("hi", False, False, False),
        ("hi you", True, True, False),
    ]


@pytest.mark.parametrize("following", [progress(500), caption("on", is_final=False, segment=1)])
def test_a_final_result_without_a_pause_is_not_the_end_of_speech(following: Event) -> None:
    messages = told(opened(), caption("hi"), following)
    assert [flags(m) for m in messages] == [("hi", True, False, False)]


def test_a_caption_that_came_to_nothing_is_a_final_result_too() -> None:
    dialect = opened(interim_results="true", utterance_end_ms="1000")
    messages = told(dialect, caption("", is_final=False), caption(""), OFF, progress(9_000))
    assert [flags(m) for m in messages] == [
        ("", False, False, False),
        ("", True, True, False),
    ]


def test_without_endpointing_nothing_ends_speech() -> None:
    messages = told(opened(endpointing="false"), caption("hi"), OFF, progress(99_000))
    assert [flags(m) for m in messages] == [("hi", True, False, False)]


def test_a_longer_pause_than_the_streams_is_told_when_it_is_over() -> None:
    dialect = opened(endpointing="1000")
    assert [flags(m) for m in told(dialect, caption("hi"), OFF)] == [("hi", True, False, False)]
    assert told(dialect, progress(1_399)) == []
    assert [flags(m) for m in told(dialect, progress(1_400))] == [("", True, True, False)]
    assert told(dialect, progress(9_000)) == []


def test_speech_before_the_end_of_a_longer_pause_goes_on() -> None:
    dialect = opened(endpointing="1000")
    told(dialect, caption("hi"), OFF, SpeechChange(is_on=True, at_ms=900))
    assert told(dialect, progress(5_000)) == []


def test_the_start_of_speech_is_told_where_asked() -> None:
    assert told(opened(), ON) == []
    (started,) = told(opened(vad_events="true"), ON)
    assert (started["type"], started["timestamp"]) == ("SpeechStarted", 0.09)


def test_a_gap_after_the_last_final_word_is_told_once() -> None:
    dialect = opened(interim_results="true", utterance_end_ms="1000")
    told(dialect, caption("hi"), OFF)
    assert told(dialect, progress(1_199)) == []
    (end,) = told(dialect, progress(1_200))
    assert (end["type"], end["last_word_end"]) == ("UtteranceEnd", 0.2)
    assert told(dialect, progress(9_000)) == []


def test_words_that_are_not_final_are_no_gap() -> None:
    dialect = opened(interim_results="true", utterance_end_ms="1000")
    told(dialect, caption("hi"), OFF, caption("and", is_final=False, segment=1, start_ms=1_000))
    assert told(dialect, progress(2_000)) == []
    told(dialect, caption("and", segment=1, start_ms=1_000), OFF)
    (end,) = told(dialect, progress(2_100))
    assert end["last_word_end"] == 1.1


def test_finalize_is_answered_with_what_was_open() -> None:
    dialect = opened()
    dialect.hear('{"type":"Finalize"}')
    assert told(dialect, caption("hi"), OFF, progress(500)) == []
    assert [flags(m) for m in told(dialect, Finalized())] == [("hi", True, True, True)]
    assert [flags(m) for m in told(dialect, caption("you", segment=1), OFF)] == [
        ("you", True, True, False)
    ]


def test_finalize_is_answered_where_nothing_was_open() -> None:
    dialect = opened()
    dialect.hear('{"type":"Finalize"}')
    (message,) = told(dialect, progress(700), Finalized())
    assert flags(message) == ("", True, False, True)
    assert message["start"] == 0.7


def test_of_several_results_the_last_answers_finalize() -> None:
    dialect = opened()
    dialect.hear('{"type":"Finalize"}')
    messages = told(dialect, caption("hi"), OFF, caption("you", segment=1), OFF, Finalized())
    assert [flags(m) for m in messages] == [("hi", True, True, False), ("you", True, True, True)]


def test_channels_have_results_of_their_own() -> None:
    dialect = opened(channels="2", multichannel="true")
    dialect.hear('{"type":"Finalize"}')
    messages = told(dialect, caption("left", speaker="0"), caption("right", speaker="1"))
    messages += told(dialect, Finalized())
    assert [(m["channel_index"], *flags(m)) for m in messages] == [
        ([0, 2], "left", True, True, True),
        ([1, 2], "right", True, True, True),
    ]
    quiet = opened(channels="2", multichannel="true", endpointing="false")
    (message,) = told(quiet, caption("right", speaker="1"), progress(1))
    assert flags(message) == ("right", True, False, False)


def test_the_end_tells_what_was_sent() -> None:
    dialect = opened()
    for piece in (b"ab", b"cd"):
        dialect.hear(piece)
    (last,) = told(dialect, progress(1_500), caption("hi"), Done(1_500, 1))
    assert flags(last)[0] == "hi"
    farewell = dialect.done()
    (metadata,) = map(json.loads, farewell.messages)
    assert metadata["sha256"] == hashlib.sha256(b"abcd").hexdigest()
    assert metadata["duration"] == 1.5
    assert metadata["created"] == "2026-01-02T12:00:00.000000Z"
    assert metadata["request_id"] == READY.stream
    assert farewell.close_code == 1000


# How it is refused


def test_who_sends_nothing_is_closed_as_by_deepgram() -> None:
    farewell = opened().refuse(RefusalError(CloseCode.IDLE, "idle", "m", "r"))
    assert (farewell.messages, farewell.close_code) == ([], 1011)
    reason = (
        "did not receive audio data or a text message within the timeout window."
        " See https://dpgr.am/net0001"
    )
    assert farewell.reason.endswith(reason)
    assert len(farewell.reason) <= 123
    assert made().idle_timeout_s == IDLE_TIMEOUT_S == 10


@pytest.mark.parametrize(
    ("code", "close_code", "reason"),
    [
        (CloseCode.BAD_AUDIO, 1008, "DATA-0000"),
        (CloseCode.BAD_MESSAGE, 1008, "x"),
        (CloseCode.FULL, 1013, "x"),
        (CloseCode.INTERNAL, 1011, "x"),
    ],
)
def test_other_errors_are_explained(code: CloseCode, close_code: int, reason: str) -> None:
    farewell = made().refuse(RefusalError(code, "x", "What.", "How."))
    (error,) = map(json.loads, farewell.messages)
    assert (error["type"], error["err_msg"]) == ("Error", "What. How.")
    assert farewell.close_code == close_code
    assert farewell.reason.startswith(reason)
