from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Opening
from audiokv.server.telephony.vonage import VonageDialect
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, begin_in, messages, survives

WORDS = {"event", "websocket:connected", "content-type", "audio/l16;rate=8000", "language"}


def connected(kind: str = "audio/l16;rate=16000", **headers: Any) -> str:
    return json.dumps({"event": "websocket:connected", "content-type": kind, **headers})


def opened() -> VonageDialect:
    dialect = VonageDialect()
    dialect.open(Opening(query={"language": ("de",)}))
    return dialect


def test_connected_begins_the_stream_with_its_own_headers() -> None:
    dialect = opened()
    begin = begin_in(dialect.hear(connected(prompt="Knopf", customer="7")))
    assert begin.fmt == AudioFormat()
    assert (begin.language, begin.prompt) == ("de", "Knopf")
    assert begin.metadata == {"source": "vonage", "customer": "7"}
    assert dialect.hear(b"\x01\x00") == [Audio(b"\x01\x00")]


@pytest.mark.parametrize(
    ("kind", "rate_hz"),
    [("audio/l16;rate=8000", 8_000), ("audio/l16; rate=24000", 24_000), ("audio/l16", 16_000)],
)
def test_the_rate_is_part_of_the_type(kind: str, rate_hz: int) -> None:
    assert begin_in(opened().hear(connected(kind))).fmt.sample_rate_hz == rate_hz


@pytest.mark.parametrize("event", ["websocket:dtmf", "websocket:notify", "websocket:connected"])
def test_later_events_are_left_out(event: str) -> None:
    dialect = opened()
    dialect.hear(connected())
    assert dialect.hear(json.dumps({"event": event, "digit": "5"})) == []


@pytest.mark.parametrize("message", [b"\x01\x00", connected("audio/opus"), "hello"])
def test_a_wrong_beginning_is_refused(message: str | bytes) -> None:
    with pytest.raises(MessageError):
        opened().hear(message)


@FUZZED
@given(st.lists(messages(WORDS) | st.just(connected()), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(VonageDialect(), heard)
