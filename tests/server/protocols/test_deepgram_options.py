from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.deepgram_options import ListenOptions, read_options
from audiokv.server.protocols.dialect import Opening
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError
from tests.server.protocols.fuzzing import FUZZED

RAW = {"encoding": "linear16", "sample_rate": "16000"}


def asked(*, can_tell_speakers: bool = False, **query: str | list[str]) -> ListenOptions:
    values = {
        name: tuple([value] if isinstance(value, str) else value)
        for name, value in {**RAW, **query}.items()
    }
    opening = Opening("/v1/listen", values, pause_ms=450)
    return read_options(opening, can_tell_speakers=can_tell_speakers)


def test_the_defaults_are_deepgrams() -> None:
    options = asked()
    assert options.begin.fmt == AudioFormat(Encoding.PCM_S16LE, 16_000)
    assert options.begin.language is None
    assert not options.is_interim
    assert not options.is_punctuated
    assert options.endpointing_ms == 10
    assert options.utterance_end_ms is None
    assert not options.has_vad_events
    assert options.n_channels == 1


@pytest.mark.parametrize(
    ("query", "fmt"),
    [
        ({"encoding": "mulaw", "sample_rate": "8000"}, AudioFormat(Encoding.MULAW, 8_000)),
        ({"encoding": "alaw", "sample_rate": "8000"}, AudioFormat(Encoding.ALAW, 8_000)),
        ({"encoding": "linear32", "sample_rate": "48000"}, AudioFormat(Encoding.PCM_F32LE, 48_000)),
        ({"channels": "2"}, AudioFormat(Encoding.PCM_S16LE, 16_000, 2)),
    ],
)
def test_formats(query: dict[str, Any], fmt: AudioFormat) -> None:
    assert asked(**query).begin.fmt == fmt


def test_mulaw_needs_no_rate() -> None:
    options = read_options(Opening("/v1/listen", {"encoding": ("mulaw",)}), can_tell_speakers=False)
    assert options.begin.fmt.sample_rate_hz == 8_000


def test_channels_are_apart_only_where_asked() -> None:
    assert asked(channels="2").n_channels == 1
    options = asked(channels="2", multichannel="true")
    assert options.n_channels == 2
    assert options.begin.channel_labels == ("0", "1")
    assert asked(multichannel="true").n_channels == 1


@pytest.mark.parametrize(
    ("language", "expected", "is_multilingual"),
    [("en-US", "en", False), ("de", "de", False), ("multi", None, True), ("", None, False)],
)
def test_languages(language: str, expected: str | None, *, is_multilingual: bool) -> None:
    options = asked(language=language)
    assert options.begin.language == expected
    assert options.is_multilingual is is_multilingual


def test_terms_and_tags_reach_the_stream() -> None:
    options = asked(
        keyterm=["Anna", "Ms Smith"], keywords=["snuffle:2"], tag=["a", "b"], extra="k:v"
    )
    assert options.begin.prompt == "Anna, Ms Smith, snuffle"
    assert options.begin.metadata == {"tag": "a, b", "extra": "k:v"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [("300", 300), ("false", None), ("true", 10), ("0", 0), ("10", 10)],
)
def test_endpointing(value: str, expected: int | None) -> None:
    assert asked(endpointing=value).endpointing_ms == expected


def test_switches_and_times_are_read() -> None:
    options = asked(
        interim_results="true", utterance_end_ms="1200", vad_events="true", smart_format="true"
    )
    assert options.is_interim
    assert options.utterance_end_ms == 1_200
    assert options.has_vad_events
    assert options.is_punctuated
    assert asked(punctuate="true").is_punctuated
    assert asked(profanity_filter="true").is_masked


def test_speakers_are_told_where_the_server_can() -> None:
    assert asked(diarize="true", can_tell_speakers=True).has_speakers
    assert asked(diarize_model="latest", can_tell_speakers=True).has_speakers
    assert not asked(can_tell_speakers=True).has_speakers


@pytest.mark.parametrize(
    "query",
    [
        {"model": "nova-3", "version": "latest", "tier": "enhanced", "mip_opt_out": "true"},
        {"diarize": "false", "redact": "False", "profanity_filter": "false", "dictation": "0"},
        {"filler_words": "true"},
        {"detect_language": "true", "alternatives": "1", "no_delay": "true"},
    ],
)
def test_what_changes_nothing_is_taken(query: dict[str, Any]) -> None:
    assert asked(**query) == asked()


@pytest.mark.parametrize(
    "query",
    [
        {"encoding": "opus"},
        {"encoding": ""},
        {"sample_rate": "4000"},
        {"sample_rate": ""},
        {"channels": "3"},
        {"utterance_end_ms": "500", "interim_results": "true"},
        {"utterance_end_ms": "1000"},
        {"endpointing": "soon"},
        {"endpointing": "-1"},
        {"endpointing": "9" * 100},
        {"endpointing": "500", "channels": "2", "multichannel": "true"},
        {"diarize": "true"},
        {"diarize_model": "v2"},
        {"redact": "pci"},
        {"callback": "http://elsewhere.test"},
        {"alternatives": "2"},
        {"numerals": "true"},
        {"interim_results": "perhaps"},
    ],
)
def test_what_is_not_supported_is_refused_by_name(query: dict[str, Any]) -> None:
    name = next(iter(query))
    with pytest.raises(MessageError, match=name) as caught:
        asked(**query)
    assert caught.value.remedy


def test_what_pipecat_and_livekit_ask_for_by_default_is_taken() -> None:
    off = ("detect_entities", "diarize", "dictation", "numerals", "smart_format", "multichannel")
    not_wanted: dict[str, Any] = dict.fromkeys(off, "false")
    options = asked(
        **not_wanted,
        model="nova-3-general",
        language="en",
        channels="1",
        interim_results="true",
        profanity_filter="true",
        punctuate="true",
    )
    assert options.is_interim
    assert options.is_punctuated
    assert options.is_masked
    options = asked(
        model="nova-3",
        language="en-US",
        punctuate="true",
        smart_format="false",
        no_delay="true",
        interim_results="true",
        vad_events="true",
        channels="1",
        endpointing="25",
        filler_words="true",
        profanity_filter="false",
        numerals="false",
        mip_opt_out="false",
    )
    assert options.endpointing_ms == 25
    assert options.has_vad_events


def test_containers_are_refused_with_a_remedy() -> None:
    with pytest.raises(MessageError, match="no encoding") as caught:
        read_options(Opening("/v1/listen"), can_tell_speakers=False)
    assert "linear16" in caught.value.remedy


NAMES = [
    "encoding", "sample_rate", "channels", "multichannel", "language", "interim_results",
    "endpointing", "utterance_end_ms", "vad_events", "keyterm", "diarize", "diarize_model",
    "alternatives", "punctuate",
]  # fmt: skip
VALUES = st.text(max_size=10) | st.sampled_from(["true", "false", "16000", "\ud800", "9" * 5_000])


@FUZZED
@given(st.dictionaries(st.sampled_from(NAMES), VALUES.map(lambda v: [v]), max_size=8))
def test_any_address_is_read_or_refused(query: dict[str, Any]) -> None:
    with suppress(MessageError):
        asked(**query)
