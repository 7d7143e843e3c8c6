from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Opening, Stop
from audiokv.server.telephony.asterisk import AsteriskDialect
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, begin_in, messages, survives

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = (
    "MEDIA_START connection_id:captions channel:WebSocket/captions/0x7f channel_id:1795974839.7 "
    "format:ulaw optimal_frame_size:160 ptime:20"
)
WORDS = {
    "MEDIA_START",
    "format:slin16",
    "event",
    "format",
    "channel_id",
    "channel_variables",
    "language",
    "slin16",
    "ulaw",
    "HANGUP",
    "STATUS",
}


def start(**changes: Any) -> str:
    values = {
        "event": "MEDIA_START",
        "connection_id": "captions",
        "channel": "WebSocket/captions/0x7f",
        "channel_id": "1795974839.7",
        "format": "slin16",
        "optimal_frame_size": 640,
        "ptime": 20,
        "channel_variables": {},
    }
    return json.dumps({**values, **changes})


def opened(query: Mapping[str, tuple[str, ...]] | None = None) -> AsteriskDialect:
    dialect = AsteriskDialect()
    assert dialect.open(Opening(path="/call/asterisk", query=query or {})) == []
    return dialect


def test_a_json_start_begins_a_stream_with_the_calls_names() -> None:
    begin = begin_in(opened().hear(start()))
    assert begin.fmt == AudioFormat()
    assert begin.metadata == {
        "source": "asterisk",
        "call": "1795974839.7",
        "connection_id": "captions",
        "channel": "WebSocket/captions/0x7f",
    }


def test_the_address_tells_who_calls() -> None:
    asked = {"from": ("+331",), "to": ("100",), "caller": ("Zoë",), "direction": ("in",)}
    begin = begin_in(opened(asked).hear(start()))
    assert {name: begin.metadata[name] for name in asked} == {
        "from": "+331",
        "to": "100",
        "caller": "Zoë",
        "direction": "in",
    }


def test_a_plain_start_begins_a_stream() -> None:
    begin = begin_in(opened().hear(PLAIN))
    assert begin.fmt == AudioFormat(Encoding.MULAW, 8_000)
    assert begin.metadata["call"] == "1795974839.7"


@pytest.mark.parametrize(
    ("codec", "fmt"),
    [
        ("slin", AudioFormat(sample_rate_hz=8_000)),
        ("slin12", AudioFormat(sample_rate_hz=12_000)),
        ("slin44", AudioFormat(sample_rate_hz=44_100)),
        ("slin48", AudioFormat(sample_rate_hz=48_000)),
        ("slin192", AudioFormat()),
        ("alaw", AudioFormat(Encoding.ALAW, 8_000)),
    ],
)
def test_every_linear_rate_and_g711_is_taken(codec: str, fmt: AudioFormat) -> None:
    assert begin_in(opened().hear(start(format=codec))).fmt == fmt


def test_another_codec_is_refused_with_a_way_out() -> None:
    with pytest.raises(MessageError) as caught:
        opened().hear(start(format="opus"))
    assert caught.value.code == "unsupported_codec"
    assert "c(slin16)" in caught.value.remedy


def test_audio_is_passed_on() -> None:
    dialect = opened()
    dialect.hear(start())
    assert dialect.hear(b"\x01\x02\x03") == [Audio(b"\x01\x02\x03")]


def test_wishes_come_from_the_address_and_from_channel_variables() -> None:
    query = {"language": ("de",), "prompt": ("Knopf",)}
    assert begin_in(opened(query).hear(start())).language == "de"
    begin = begin_in(opened(query).hear(start(channel_variables={"language": "fr"})))
    assert (begin.language, begin.prompt) == ("fr", "Knopf")


@pytest.mark.parametrize("message", ["DTMF_END digit:5", '{"event":"DTMF_END","digit":"5"}', ""])
def test_other_events_are_left_out(message: str) -> None:
    dialect = opened()
    dialect.hear(start())
    assert dialect.hear(message) == []


def test_a_hangup_ends_the_stream() -> None:
    dialect = opened()
    dialect.hear(start())
    assert dialect.hear('{"event":"HANGUP"}') == [Stop()]


@pytest.mark.parametrize("message", [b"audio", "DTMF_END digit:5", "GET / HTTP/1.1", "", "{}"])
def test_what_does_not_begin_with_a_start_is_refused(message: str | bytes) -> None:
    with pytest.raises(MessageError) as caught:
        opened().hear(message)
    assert caught.value.code == "start_expected"


def test_a_second_start_is_refused() -> None:
    dialect = opened()
    dialect.hear(start())
    with pytest.raises(MessageError):
        dialect.hear(start())


@FUZZED
@given(st.lists(messages(WORDS) | st.just(PLAIN) | st.just(start()), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(AsteriskDialect(), heard)
