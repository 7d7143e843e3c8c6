from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.openai_session import (
    SessionSettings,
    shown_beta_settings,
    shown_settings,
    update_beta_settings,
    update_settings,
)
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError
from tests.server.protocols.fuzzing import ANYTHING, FUZZED, objects

LANGUAGES = frozenset({"de", "en"})
BEFORE = SessionSettings(model="m", language="de", prompt="Anna", silence_ms=700)


def updated(before: SessionSettings = BEFORE, **given_input: Any) -> SessionSettings:
    return update_settings(before, {"audio": {"input": given_input}}, LANGUAGES)


def test_the_defaults_are_openais() -> None:
    settings = SessionSettings()
    assert settings.fmt == AudioFormat(Encoding.PCM_S16LE, 24_000)
    assert settings.silence_ms == 500


def test_what_is_not_named_stays() -> None:
    assert updated() == update_settings(BEFORE, {}, LANGUAGES) == BEFORE
    assert update_beta_settings(BEFORE, {}, LANGUAGES) == BEFORE


@pytest.mark.parametrize(
    ("given_format", "fmt"),
    [
        ({"type": "audio/pcm", "rate": 24_000}, AudioFormat(Encoding.PCM_S16LE, 24_000)),
        ({"type": "audio/pcm"}, AudioFormat(Encoding.PCM_S16LE, 24_000)),
        ({"type": "audio/pcm", "rate": 16_000}, AudioFormat(Encoding.PCM_S16LE, 16_000)),
        ({"type": "audio/pcmu"}, AudioFormat(Encoding.MULAW, 8_000)),
        ({"type": "audio/pcma"}, AudioFormat(Encoding.ALAW, 8_000)),
    ],
)
def test_formats(given_format: dict[str, object], fmt: AudioFormat) -> None:
    assert updated(format=given_format).fmt == fmt


@pytest.mark.parametrize(
    ("name", "fmt"),
    [
        ("pcm16", AudioFormat(Encoding.PCM_S16LE, 24_000)),
        ("g711_ulaw", AudioFormat(Encoding.MULAW, 8_000)),
        ("g711_alaw", AudioFormat(Encoding.ALAW, 8_000)),
    ],
)
def test_formats_of_the_beta(name: str, fmt: AudioFormat) -> None:
    settings = update_beta_settings(BEFORE, {"input_audio_format": name}, LANGUAGES)
    assert settings.fmt == fmt
    assert shown_beta_settings(settings, "s")["input_audio_format"] == name


def test_wishes_are_read() -> None:
    settings = updated(
        transcription={
            "model": "whisper-1",
            "language": "en-US",
            "prompt": "Bob",
            "keywords": ["C", "D"],
        }
    )
    assert (settings.model, settings.language, settings.prompt) == ("whisper-1", "en", "Bob, C, D")
    assert updated(transcription={"languages": ["en"]}).language == "en"
    assert updated(transcription={}).language is None


def test_turns_are_the_servers_or_the_clients() -> None:
    assert updated(turn_detection=None).silence_ms is None
    vad = {"type": "server_vad", "threshold": 0.3, "prefix_padding_ms": 100}
    assert updated(turn_detection={**vad, "silence_duration_ms": 200}).silence_ms == 200
    assert updated(turn_detection=vad).silence_ms == 500
    beta = update_beta_settings(BEFORE, {"turn_detection": None}, LANGUAGES)
    assert beta.silence_ms is None


@pytest.mark.parametrize(
    "given_input",
    [
        {"noise_reduction": {"type": "near_field"}},
        {"turn_detection": {"type": "semantic_vad"}},
        {"turn_detection": {"idle_timeout_ms": 5_000}},
        {"turn_detection": {"silence_duration_ms": -1}},
        {"transcription": {"language": "tlh"}},
        {"transcription": {"languages": ["de", "en"]}},
        {"transcription": {"delay": "low"}},
        {"format": {"type": "audio/opus"}},
        {"format": {"type": "audio/pcm", "rate": 4_000}},
        {"voice": "alloy"},
    ],
)
def test_what_is_not_supported_is_refused_by_name(given_input: dict[str, Any]) -> None:
    (value,) = given_input.values()
    name = list(value)[-1] if isinstance(value, dict) else next(iter(given_input))
    with pytest.raises(MessageError) as caught:
        updated(**given_input)
    assert name in caught.value.message or "noise_reduction" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    "values",
    [
        {"type": "realtime"},
        {"include": ["item.input_audio_transcription.logprobs"]},
        {"audio": {"output": {}}},
        {"tools": []},
    ],
)
def test_other_sessions_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(MessageError):
        update_settings(BEFORE, values, LANGUAGES)


@pytest.mark.parametrize("values", [{"include": ["x"]}, {"input_audio_format": "mp3"}, {"x": 1}])
def test_other_sessions_of_the_beta_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(MessageError, match=next(iter(values))):
        update_beta_settings(BEFORE, values, LANGUAGES)


def test_what_is_shown_is_what_is_in_effect() -> None:
    settings = updated(
        turn_detection={"type": "server_vad", "threshold": 0.9, "silence_duration_ms": 200}
    )
    shown: Any = shown_settings(settings, "sess_1")
    assert (shown["id"], shown["type"]) == ("sess_1", "transcription")
    shown_input = shown["audio"]["input"]
    assert shown_input["format"] == {"type": "audio/pcm", "rate": 24_000}
    assert shown_input["transcription"] == {"model": "m", "language": "de", "prompt": "Anna"}
    assert shown_input["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 200,
    }
    manual: Any = shown_settings(updated(turn_detection=None, format={"type": "audio/pcmu"}), "s")
    assert manual["audio"]["input"]["turn_detection"] is None
    assert manual["audio"]["input"]["format"] == {"type": "audio/pcmu"}
    beta: Any = shown_beta_settings(settings, "sess_1")
    assert beta["turn_detection"]["silence_duration_ms"] == 200
    assert beta["input_audio_transcription"]["language"] == "de"


def test_what_is_shown_can_be_sent_back() -> None:
    shown = shown_settings(BEFORE, "s")
    assert update_settings(SessionSettings(), shown, LANGUAGES) == BEFORE
    beta = shown_beta_settings(BEFORE, "s")
    assert update_beta_settings(SessionSettings(), beta, LANGUAGES) == BEFORE


INPUT = objects("format", "transcription", "turn_detection", "noise_reduction") | ANYTHING
DEEPER = objects("type", "rate", "language", "languages", "keywords", "threshold", "model")
SESSIONS = st.one_of(
    objects("type", "include", "audio", "id"),
    INPUT.map(lambda value: {"audio": {"input": value}}),
    st.builds(
        lambda name, value: {"audio": {"input": {name: value}}},
        st.sampled_from(["format", "transcription", "turn_detection"]),
        DEEPER,
    ),
    objects("input_audio_format", "input_audio_transcription", "turn_detection"),
)


@FUZZED
@given(SESSIONS)
def test_any_session_is_read_or_refused(values: dict[str, object]) -> None:
    for update in (update_settings, update_beta_settings):
        with suppress(MessageError):
            update(BEFORE, values, LANGUAGES)
