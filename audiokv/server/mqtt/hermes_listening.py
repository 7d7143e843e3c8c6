"""Hermes sessions of listening: WAV frames of a site come in, one text goes out."""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.server.mqtt.desk import Answer, Feed, Open, addressed
from audiokv.server.mqtt.hermes import TEXT_CAPTURED, captured
from audiokv.server.mqtt.stream_topics import json_payload
from audiokv.server.mqtt.topics import is_good_level
from audiokv.server.mqtt.unsent import Publication
from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Farewell,
    PlainDialect,
    Stop,
    base_language,
)
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import AudioFormatError, MessageError
from audiokv.streaming.message_fields import parse_object, shown

if TYPE_CHECKING:
    from audiokv.server.mqtt.desk import Order
    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError

ERROR = "hermes/error/asr"
START, STOP_LISTENING = "hermes/asr/startListening", "hermes/asr/stopListening"
TOGGLE_ON, TOGGLE_OFF = "hermes/asr/toggleOn", "hermes/asr/toggleOff"
_FRAME_START, _FRAME_END = "hermes/audioServer/", "/audioFrame"
DEFAULT_SITE = "default"
MAX_SITES_OFF = 1_000
STOP = "stop"
_GO = "go"
_MAX_NAME_CHARS = 128
_SAMPLE_BYTES = 2
_WAV_ERRORS = (wave.Error, EOFError, ValueError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Listening:
    """What ``startListening`` asks for.

    Attributes:
        site: Where it is listened.
        session: The dialogue's identifier, or the empty string.
        language: ISO 639-1 code, or None to detect it.
        stops_on_silence: Whether the first pause after words ends the session.
    """

    site: str
    session: str
    language: str | None
    stops_on_silence: bool


def read_listening(payload: bytes) -> Listening:
    """Return what a ``startListening`` or any message with a ``siteId`` asks for.

    Raises:
        MessageError: It is no such message; fields not known here are ignored.
    """
    try:
        values = parse_object(payload.decode()) if payload.strip() else {}
    except UnicodeDecodeError:
        raise MessageError("bad_json", "The message is not UTF-8.", "Send JSON.") from None
    site, session = _name(values, "siteId", DEFAULT_SITE), _name(values, "sessionId", "")
    language = _name(values, "lang", "")
    stops = values.get("stopOnSilence", True)
    if not is_good_level(site) or not isinstance(stops, bool):
        raise MessageError(
            "bad_field",
            f"siteId is {shown(site)} and stopOnSilence {shown(stops)}.",
            "Send a siteId that can be a level of a topic, and true or false.",
        )
    return Listening(site, session, base_language(language) or None, stops)


def _name(values: dict[str, object], field: str, default: str) -> str:
    value = values.get(field)
    if value is None:
        return default
    is_good = isinstance(value, str) and len(value) <= _MAX_NAME_CHARS and value.isprintable()
    if not is_good:
        raise MessageError(
            "bad_field",
            f'"{field}" is {shown(value)}.',
            f"Send a string of at most {_MAX_NAME_CHARS} printable characters.",
        )
    return str(value)


def read_wav(frame: bytes) -> tuple[AudioFormat, bytes]:
    """Return format and samples of a frame, a WAV file of its own.

    Raises:
        MessageError: It is none, or not one of 16-bit samples; nothing else is ever raised.
    """
    try:
        with wave.open(io.BytesIO(frame)) as wav:
            width, rate_hz, channels = wav.getsampwidth(), wav.getframerate(), wav.getnchannels()
            audio = wav.readframes(wav.getnframes())
        if width != _SAMPLE_BYTES:
            raise MessageError(
                "bad_wav", f"The samples have {8 * width} bits.", "Send samples of 16 bits."
            )
        return AudioFormat(sample_rate_hz=rate_hz, channels=channels), audio
    except _WAV_ERRORS:
        raise MessageError(
            "bad_wav",
            f"The frame of {len(frame)} bytes is not a WAV file.",
            "Send each frame as a WAV file of 16-bit samples.",
        ) from None
    except AudioFormatError as error:
        raise MessageError(error.code, error.message, error.remedy) from None


class HermesDialect(PlainDialect):
    """One session of listening: WAV chunks come in, one text goes out.

    Args:
        wish: The fields of ``startListening``, checked.
    """

    def __init__(self, wish: Listening) -> None:
        self._wish = wish
        self._fmt: AudioFormat | None = None
        self._finals: list[Caption] = []
        self._has_answered = False

    def open(self, opening: Opening) -> list[Command]:
        """Wait for audio: it says what format it has."""
        del opening
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a chunk of audio, or the end of the session."""
        if isinstance(message, str):
            return [Stop()] if message == STOP else []
        fmt, audio = read_wav(message)
        if self._fmt is None:
            self._fmt = fmt
            wish = self._wish
            names = {"siteId": wish.site, "sessionId": wish.session}
            begin = Begin(fmt, language=wish.language, metadata=names)
            return [begin, Audio(audio)]
        if fmt != self._fmt:
            raise MessageError(
                "format_changed",
                "The format of the audio changed within the session.",
                "Send all frames of a session in one format.",
            )
        return [Audio(audio)]

    def say(self, event: Event) -> list[str | bytes]:
        """Tell the text once, when someone has said something and paused."""
        if not isinstance(event, Caption) or not event.is_final or self._has_answered:
            return []
        self._finals.append(event)
        return self._text() if self._wish.stops_on_silence and event.text else []

    def done(self) -> Farewell:
        """Tell the text of the session, which may be empty, unless it was told."""
        return Farewell([] if self._has_answered else self._text(), reason="done")

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Tell why there will be no text."""
        error = {
            "error": refusal.message,
            "siteId": self._wish.site,
            "context": refusal.code,
            "sessionId": self._wish.session or None,
        }
        body = addressed(ERROR, json_payload(dict(error))).decode()
        return Farewell([body], refusal.close_code, refusal.code)

    def _text(self) -> list[str | bytes]:
        self._has_answered = True
        words = [word for caption in self._finals for word in caption.words]
        text = " ".join(caption.text for caption in self._finals if caption.text)
        languages = [caption.language for caption in self._finals if caption.language]
        labels: dict[str, object] = {
            "siteId": self._wish.site,
            "sessionId": self._wish.session or None,
            "lang": languages[-1] if languages else self._wish.language,
        }
        return [addressed(TEXT_CAPTURED, captured(words, text, labels=labels)).decode()]


class HermesRoute:
    """Sorts what a Hermes dialogue and its audio server send."""

    subscriptions = (
        START,
        STOP_LISTENING,
        TOGGLE_ON,
        TOGGLE_OFF,
        f"{_FRAME_START}+{_FRAME_END}",
    )

    def __init__(self) -> None:
        self._off: set[str] = set()

    def take(self, topic: str, payload: bytes) -> list[Order] | None:
        """Return what a message asks for."""
        if topic.startswith(_FRAME_START) and topic.endswith(_FRAME_END):
            site = topic[len(_FRAME_START) : -len(_FRAME_END)]
            return [Feed(_key(site), payload)]  # no answer: audio comes whether it is wanted or not
        if topic not in self.subscriptions:
            return None
        try:
            return self._control(topic, read_listening(payload))
        except MessageError as error:
            body = json_payload({"error": error.message, "siteId": None, "context": error.code})
            return [Answer(Publication(ERROR, body))]

    def _control(self, topic: str, wish: Listening) -> list[Order]:
        site = wish.site
        if topic == TOGGLE_ON:
            self._off.discard(site)
        elif topic == TOGGLE_OFF:
            if len(self._off) < MAX_SITES_OFF:
                self._off.add(site)
            return [Feed(_key(site), STOP)]
        elif topic == STOP_LISTENING:
            return [Feed(_key(site), STOP)]
        elif site not in self._off:
            return [Open(_key(site), HermesDialect(wish), _GO)]
        return []

    def sent(self, key: str, topic: str) -> list[Order]:
        """End the session once its text was told."""
        return [Feed(key, STOP)] if topic == TEXT_CAPTURED else []


def _key(site: str) -> str:
    return f"hermes {site}"
