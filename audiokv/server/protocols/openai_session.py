"""The settings of an OpenAI Realtime transcription session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import base_language
from audiokv.server.protocols.options import Options
from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    AudioFormat,
    Encoding,
)
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RATE_HZ = 24_000
DEFAULT_SILENCE_MS = 500
MAX_SILENCE_MS = 60_000
_G711_RATE_HZ = 8_000
# What the voice detector does for every stream, whatever one asks for.
THRESHOLD = 0.5
PADDING_MS = 300

_TYPES = {
    "audio/pcm": Encoding.PCM_S16LE,
    "audio/pcmu": Encoding.MULAW,
    "audio/pcma": Encoding.ALAW,
}
_BETA_TYPES = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_NAMES = {encoding: name for name, encoding in _TYPES.items()}
_BETA_NAMES = {name: beta for beta, name in _BETA_TYPES.items()}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is set to.

    Attributes:
        fmt: Format of the audio.
        model: What the client calls the recogniser.
        language: ISO 639-1 code, or None to detect it.
        prompt: Names and jargon to expect.
        silence_ms: Silence that ends a turn, or None where the client ends turns itself.
    """

    fmt: AudioFormat = AudioFormat(Encoding.PCM_S16LE, DEFAULT_RATE_HZ)  # noqa: RUF009  frozen
    model: str = ""
    language: str | None = None
    prompt: str = ""
    silence_ms: int | None = DEFAULT_SILENCE_MS


def update_settings(
    settings: SessionSettings, values: Mapping[str, object], languages: frozenset[str]
) -> SessionSettings:
    """Return settings with the changes of a ``session.update``; what is not named stays.

    Args:
        settings: The settings so far.
        values: The ``session`` object of the event.
        languages: ISO 639-1 codes the recogniser knows.

    Raises:
        MessageError: A setting is not supported, or has a value that is not.
    """
    options = Options("session", values)
    options.choice("type", ("transcription",), default="transcription")
    options.drop("id", "object", "expires_at")
    if options.has_items("include"):
        options.refuse("include", values["include"], "an empty list")
    audio = options.nested("audio")
    options.finish()
    given = audio.nested("input")
    audio.finish()
    if given.has("format"):
        settings = replace(settings, fmt=_format(given.nested("format")))
    return _update_input(settings, given, languages, ("transcription", "turn_detection"))


def update_beta_settings(
    settings: SessionSettings, values: Mapping[str, object], languages: frozenset[str]
) -> SessionSettings:
    """Do as `update_settings` with the flat names of ``transcription_session.update``.

    Raises:
        MessageError: A setting is not supported, or has a value that is not.
    """
    options = Options("session", values)
    options.drop("id", "object", "expires_at", "modalities")
    if options.has_items("include"):
        options.refuse("include", values["include"], "an empty list")
    if options.has("input_audio_format"):
        name = _BETA_TYPES[options.choice("input_audio_format", _BETA_TYPES, default="")]
        settings = replace(settings, fmt=_format(Options("format", {"type": name})))
    options.rename("input_audio_noise_reduction", "noise_reduction")
    return _update_input(
        settings, options, languages, ("input_audio_transcription", "turn_detection")
    )


def _update_input(
    settings: SessionSettings, given: Options, languages: frozenset[str], names: tuple[str, str]
) -> SessionSettings:
    transcription, turn_detection = names
    if given.has("noise_reduction"):
        raise MessageError(
            "unsupported_option",
            "The option 'noise_reduction' is not supported.",
            "Set it to null.",
        )
    if given.has(transcription):
        settings = _update_transcription(settings, given.nested(transcription), languages)
    if given.is_null(turn_detection):
        settings = replace(settings, silence_ms=None)
    elif given.has(turn_detection):
        settings = replace(settings, silence_ms=_silence_ms(given.nested(turn_detection)))
    given.finish()
    return settings


def _format(options: Options) -> AudioFormat:
    encoding = _TYPES[options.choice("type", _TYPES, default="audio/pcm")]
    default_hz = DEFAULT_RATE_HZ if encoding is Encoding.PCM_S16LE else _G711_RATE_HZ
    rate_hz = options.whole(
        "rate", default=default_hz, low=MIN_SAMPLE_RATE_HZ, high=MAX_SAMPLE_RATE_HZ
    )
    options.finish()
    return AudioFormat(encoding, rate_hz)


def _update_transcription(
    settings: SessionSettings, options: Options, languages: frozenset[str]
) -> SessionSettings:
    language = base_language(options.text("language"))
    several = options.texts("languages")
    if len(several) > 1 or (several and language):
        options.refuse("languages", list(several), "one language, or leave it out")
    language = base_language(several[0]) if several else language
    if language and language not in languages:
        options.refuse("language", language, f"one of {', '.join(sorted(languages))}")
    terms = [*filter(None, [options.text("prompt")]), *options.texts("keywords")]
    settings = replace(
        settings,
        model=options.text("model", default=settings.model),
        language=language or None,
        prompt=", ".join(terms),
    )
    options.finish()
    return settings


def _silence_ms(options: Options) -> int:
    options.choice("type", ("server_vad",), default="server_vad")
    options.number("threshold", default=THRESHOLD, low=0, high=1)
    options.whole("prefix_padding_ms", default=PADDING_MS, high=MAX_SILENCE_MS)
    options.drop("create_response", "interrupt_response")  # nothing is ever answered here
    silence_ms = options.whole(
        "silence_duration_ms", default=DEFAULT_SILENCE_MS, high=MAX_SILENCE_MS
    )
    options.finish()
    return silence_ms


def shown_settings(settings: SessionSettings, session_id: str) -> dict[str, object]:
    """Return the ``session`` object that tells a client what is in effect."""
    format_name = _NAMES[settings.fmt.encoding]
    shown: dict[str, object] = {"type": format_name}
    if settings.fmt.encoding is Encoding.PCM_S16LE:
        shown["rate"] = settings.fmt.sample_rate_hz
    return {
        "type": "transcription",
        "object": "realtime.transcription_session",
        "id": session_id,
        "audio": {
            "input": {
                "format": shown,
                "transcription": _shown_transcription(settings),
                "noise_reduction": None,
                "turn_detection": _shown_turns(settings),
            }
        },
        "include": None,
    }


def shown_beta_settings(settings: SessionSettings, session_id: str) -> dict[str, object]:
    """Return the same with the flat names of the beta."""
    return {
        "object": "realtime.transcription_session",
        "id": session_id,
        "input_audio_format": _BETA_NAMES[_NAMES[settings.fmt.encoding]],
        "input_audio_transcription": _shown_transcription(settings),
        "input_audio_noise_reduction": None,
        "turn_detection": _shown_turns(settings),
        "include": None,
    }


def _shown_transcription(settings: SessionSettings) -> dict[str, object]:
    return {
        "model": settings.model,
        "language": settings.language,
        "prompt": settings.prompt,
    }


def _shown_turns(settings: SessionSettings) -> dict[str, object] | None:
    if settings.silence_ms is None:
        return None
    return {
        "type": "server_vad",
        "threshold": THRESHOLD,
        "prefix_padding_ms": PADDING_MS,
        "silence_duration_ms": settings.silence_ms,
    }
