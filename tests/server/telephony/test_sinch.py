from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Opening, Reply
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.sinch import SinchDialect
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, begin_in, messages, survives

WORDS = {"command", "connect", "codec", "PCM", "sampleRate", "callId", "callHeaders", "heartbeat"}
FULL = RefusalError(CloseCode.FULL, "full", "All taken.", "Try later.", retry_after_s=10)
WRONG = RefusalError(CloseCode.BAD_MESSAGE, "bad_json", "No JSON.", "Send JSON.")


def connect(**changes: Any) -> str:
    values = {
        "command": "connect",
        "version": 1,
        "callId": "c1",
        "codec": "PCM",
        "sampleRate": 16000,
        "callHeaders": {"language": "de-DE", "desk": "4"},
    }
    return json.dumps({**values, **changes})


def opened() -> SinchDialect:
    dialect = SinchDialect()
    dialect.open(Opening())
    return dialect


def test_connect_begins_the_stream_and_is_answered() -> None:
    dialect = opened()
    begin, answer = dialect.hear(connect())
    assert begin_in([begin]).fmt == AudioFormat()
    assert begin_in([begin]).language == "de"
    assert begin_in([begin]).metadata == {
        "source": "sinch",
        "language": "de-DE",
        "desk": "4",
        "call": "c1",
    }
    assert isinstance(answer, Reply)
    assert json.loads(answer.message) == {"command": "answer"}
    assert dialect.hear(b"\x01\x00") == [Audio(b"\x01\x00")]


def test_a_studio_rate_is_brought_down() -> None:
    assert begin_in(opened().hear(connect(sampleRate=96_000))).fmt == AudioFormat()


def test_a_running_call_gets_heartbeats() -> None:
    dialect = opened()
    assert dialect.tick() == []
    dialect.hear(connect())
    assert [json.loads(message) for message in dialect.tick()] == [{"command": "heartbeat"}]
    assert dialect.tick_every_s is not None
    assert dialect.tick_every_s < 60  # Sinch's limit


def test_a_full_server_is_busy_and_a_wrong_call_is_rejected() -> None:
    assert json.loads(opened().refuse(FULL).messages[0]) == {"command": "busy"}
    assert json.loads(opened().refuse(WRONG).messages[0]) == {"command": "reject"}


def test_a_running_call_just_ends() -> None:
    dialect = opened()
    dialect.hear(connect())
    assert dialect.refuse(WRONG).messages == []


@pytest.mark.parametrize("command", ["heartbeat", "connect", "other"])
def test_later_commands_are_left_out(command: str) -> None:
    dialect = opened()
    dialect.hear(connect())
    assert dialect.hear(json.dumps({"command": command})) == []


@pytest.mark.parametrize("message", [b"\x01\x00", connect(codec="OPUS"), "hello"])
def test_a_wrong_beginning_is_refused(message: str | bytes) -> None:
    with pytest.raises(MessageError):
        opened().hear(message)


@FUZZED
@given(st.lists(messages(WORDS) | st.just(connect()), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(SinchDialect(), heard)
