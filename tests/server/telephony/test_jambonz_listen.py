from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Opening
from audiokv.server.telephony.jambonz_listen import JambonzListenDialect
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, begin_in, messages, survives

WORDS = {"sampleRate", "mixType", "stereo", "metadata", "language", "callSid", "from", "event"}


def call(**changes: Any) -> str:
    values = {
        "callSid": "c1",
        "direction": "inbound",
        "from": "+1",
        "to": "+2",
        "sampleRate": 16000,
        "mixType": "mono",
        "metadata": {"language": "de-DE", "prompt": "Knopf"},
    }
    return json.dumps({**values, **changes})


def opened() -> JambonzListenDialect:
    dialect = JambonzListenDialect()
    dialect.open(Opening(query={"language": ("en",)}))
    return dialect


def test_the_calls_attributes_begin_the_stream() -> None:
    dialect = opened()
    begin = begin_in(dialect.hear(call()))
    assert begin.fmt == AudioFormat()
    assert (begin.language, begin.prompt, begin.channel_labels) == ("de", "Knopf", ())
    assert begin.metadata == {
        "source": "jambonz",
        "call": "c1",
        "from": "+1",
        "to": "+2",
        "direction": "inbound",
    }
    assert dialect.hear(b"\x01\x00") == [Audio(b"\x01\x00")]


def test_stereo_has_a_channel_for_each_side() -> None:
    begin = begin_in(opened().hear(call(mixType="stereo")))
    assert (begin.fmt.channels, begin.channel_labels) == (2, ("caller", "callee"))


def test_without_a_rate_it_is_8_khz_and_the_address_tells_the_language() -> None:
    begin = begin_in(opened().hear("{}"))
    assert (begin.fmt.sample_rate_hz, begin.language) == (8_000, "en")


def test_digits_are_left_out() -> None:
    dialect = opened()
    dialect.hear(call())
    assert dialect.hear('{"event":"dtmf","dtmf":"2","duration":"1600"}') == []


@pytest.mark.parametrize("message", [b"\x01\x00", "no json", '{"sampleRate": 1}'])
def test_what_does_not_begin_with_attributes_is_refused(message: str | bytes) -> None:
    with pytest.raises(MessageError):
        opened().hear(message)


@FUZZED
@given(st.lists(messages(WORDS) | st.just(call()), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(JambonzListenDialect(), heard)
