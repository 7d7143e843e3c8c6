from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Opening
from audiokv.server.telephony.freeswitch import FreeSwitchDialect
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import FUZZED, a_caption, begin_in, messages, survives

WORDS = {"rate", "sampleRate", "channels", "language", "prompt", "caller", "8000"}


def opened(**query: str) -> FreeSwitchDialect:
    dialect = FreeSwitchDialect()
    assert dialect.open(Opening(query={name: (value,) for name, value in query.items()})) == []
    return dialect


def test_audio_alone_begins_a_stream_as_the_address_says() -> None:
    begin, audio = opened(rate="16000", channels="2", language="de").hear(b"\x01\x00")
    assert begin_in([begin]).fmt == AudioFormat(sample_rate_hz=16_000, channels=2)
    assert begin_in([begin]).channel_labels == ("caller", "callee")
    assert begin_in([begin]).language == "de"
    assert audio == Audio(b"\x01\x00")


def test_without_a_word_it_is_8_khz_mono() -> None:
    begin = begin_in(opened().hear(b""))
    assert (begin.fmt, begin.channel_labels) == (AudioFormat(sample_rate_hz=8_000), ())


def test_metadata_begins_the_stream_and_goes_before_the_address() -> None:
    dialect = opened(rate="16000")
    metadata = {"sampleRate": 8000, "language": "fr", "caller": "+331", "list": [1]}
    begin = begin_in(dialect.hear(json.dumps(metadata)))
    assert (begin.fmt.sample_rate_hz, begin.language) == (8_000, "fr")
    assert begin.metadata == {
        "source": "freeswitch",
        "sampleRate": "8000",
        "language": "fr",
        "caller": "+331",
    }
    assert dialect.hear(b"\x01\x00") == [Audio(b"\x01\x00")]


def test_metadata_need_not_be_json() -> None:
    metadata = begin_in(opened().hear("table 5, Zoë")).metadata
    assert metadata == {"source": "freeswitch", "metadata": "table 5, Zoë"}


def test_text_at_the_end_is_left_out() -> None:
    dialect = opened()
    dialect.hear(b"")
    assert dialect.hear('{"reason":"hangup"}') == []


@pytest.mark.parametrize("query", [{"rate": "fast"}, {"channels": "-1"}])
def test_an_address_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(MessageError):
        opened(**query)


@pytest.mark.parametrize("query", [{"rate": "500"}, {"channels": "3"}])
def test_audio_that_cannot_be_taken_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(MessageError):
        opened(**query).hear(b"\x01\x00")


def test_captions_go_back_as_json_that_both_modules_pass_on() -> None:
    (message,) = opened().say(a_caption("grüß Gott"))
    assert "grüß" in str(message)
    heard = json.loads(message)
    assert heard["type"] == "transcription"
    assert heard["data"]["text"] == "grüß Gott"
    assert heard["data"]["is_final"] is True
    assert (heard["data"]["start_ms"], heard["data"]["end_ms"]) == (1_000, 1_800)


def test_partial_captions_go_back_only_where_they_are_asked_for() -> None:
    assert opened().say(a_caption(is_final=False)) == []
    (message,) = opened(interim="1").say(a_caption(is_final=False))
    assert json.loads(message)["data"]["is_final"] is False


@FUZZED
@given(st.lists(messages(WORDS), max_size=6))
def test_nothing_but_its_own_error(heard: list[str | bytes]) -> None:
    survives(FreeSwitchDialect(), heard)
