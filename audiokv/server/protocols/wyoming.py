"""Wyoming, the protocol of Home Assistant's voice assistants, as a speech-to-text service.

One utterance a connection. Committed words are told while it is spoken; the whole transcript
follows its end. Source: the README of the wyoming project, and its Python package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Farewell,
    PlainDialect,
    Reply,
    Stop,
    base_language,
)
from audiokv.server.protocols.options import Options
from audiokv.server.protocols.wyoming_events import EventReader, WyomingEvent, write_event
from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    AudioFormat,
    Encoding,
)
from audiokv.streaming.captions import Caption, SpeechChange, join_words
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError

DEFAULT_RATE_HZ = 16_000
_SAMPLE_BYTES = 2
_PROJECT = {"name": "AudioKV", "url": ""}


class WyomingDialect(PlainDialect):
    """One connection of a Wyoming client."""

    def __init__(self) -> None:
        self._reader = EventReader()
        self._opening: Opening | None = None
        self._language: str | None = None
        self._prompt = ""
        self._fmt: AudioFormat | None = None
        self._spoken_language: str | None = None
        self._text = ""
        self._segment = -1
        self._n_told = 0  # words of the segment that were told
        self._is_told = False

    def open(self, opening: Opening) -> list[Command]:
        """Wait for the first event."""
        self._opening = opening
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a piece of the byte stream.

        Raises:
            MessageError: It is not Wyoming, or asks for what is not supported.
        """
        piece = message.encode(errors="replace") if isinstance(message, str) else message
        return [command for event in self._reader.push(piece) for command in self._obey(event)]

    def _obey(self, event: WyomingEvent) -> list[Command]:
        match event.kind:
            case "describe":
                return [Reply(self._info())]
            case "ping":
                text = Options("ping", event.data).text("text")
                return [Reply(write_event("pong", {"text": text} if text else None))]
            case "transcribe":
                self._wish(Options("transcribe", event.data))
            case "audio-start":
                return self._begin(event)
            case "audio-chunk":
                return [*self._begin(event), Audio(event.payload)]
            case "audio-stop":
                return [Stop()]
            case _:
                pass  # as the protocol has it: an unknown event is passed over
        return []

    def _wish(self, options: Options) -> None:
        if self._fmt is not None:
            raise MessageError(
                "late_transcribe", "transcribe came after the audio.", "Send it before."
            )
        name = options.text("name")
        model = "" if self._opening is None else self._opening.model
        if name not in ("", model):
            options.refuse("name", name, f"{model}, or leave it out")
        self._language = base_language(options.text("language")) or None
        terms = (*options.texts("transcript_names"), *options.texts("transcript_terms"))
        self._prompt = ", ".join(terms)
        options.drop("context", "vad_sensitivity")  # of the client's own end of speech
        options.finish()

    def _begin(self, event: WyomingEvent) -> list[Command]:
        options = Options(event.kind, event.data)
        known = self._fmt or AudioFormat(Encoding.PCM_S16LE, DEFAULT_RATE_HZ)
        options.whole("width", default=_SAMPLE_BYTES, low=_SAMPLE_BYTES, high=_SAMPLE_BYTES)
        rate_hz = options.whole(
            "rate", default=known.sample_rate_hz, low=MIN_SAMPLE_RATE_HZ, high=MAX_SAMPLE_RATE_HZ
        )
        channels = options.whole("channels", default=known.channels, low=1, high=2)
        options.drop("timestamp")
        fmt = AudioFormat(Encoding.PCM_S16LE, rate_hz, channels)
        if self._fmt == fmt:
            return []
        if self._fmt is not None:
            raise MessageError(
                "late_format", "The audio format changed in mid-stream.", "Keep to the first."
            )
        self._fmt = fmt
        return [Begin(fmt, language=self._language, prompt=self._prompt)]

    def say(self, event: Event) -> list[str | bytes]:
        """Return newly committed words, and where speech begins and ends."""
        match event:
            case Caption():
                return self._tell(event)
            case SpeechChange():
                kind = "voice-started" if event.is_on else "voice-stopped"
                return [write_event(kind, {"timestamp": event.at_ms})]
            case _:
                return []

    def _tell(self, caption: Caption) -> list[str | bytes]:
        if caption.segment != self._segment:
            self._segment, self._n_told = caption.segment, 0
        self._spoken_language = caption.language or self._spoken_language
        n_committed = sum(word.is_final for word in caption.words)
        fresh = caption.words[self._n_told : n_committed]
        if not fresh:
            return []
        self._n_told = n_committed
        text = join_words(fresh)
        if self._text and fresh[0].space_before:
            text = f" {text}"
        self._text += text
        return [*self._start(), write_event("transcript-chunk", {"text": text})]

    def _start(self) -> list[str | bytes]:
        if self._is_told:
            return []
        self._is_told = True
        return [write_event("transcript-start", self._language_field())]

    def _language_field(self) -> dict[str, object]:
        language = self._spoken_language or self._language
        return {} if language is None else {"language": language}

    def done(self) -> Farewell:
        """Tell the whole transcript."""
        transcript = {"text": self._text, **self._language_field()}
        last = [write_event("transcript", transcript), write_event("transcript-stop")]
        return Farewell([*self._start(), *last])

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Tell why in an ``error``."""
        text = f"{refusal.message} {refusal.remedy}"
        return Farewell([write_event("error", {"text": text, "code": refusal.code})])

    def _info(self) -> bytes:
        model = "" if self._opening is None else self._opening.model
        languages = frozenset[str]() if self._opening is None else self._opening.languages
        about: dict[str, object] = {"attribution": _PROJECT, "installed": True, "version": None}
        asr_model = {
            "name": model,
            "description": f"The recogniser {model}",
            "languages": sorted(languages),
            **about,
        }
        program = {
            "name": "audiokv",
            "description": "Live captions",
            "models": [asr_model],
            "supports_transcript_streaming": True,
            "requires_external_vad": True,
            **about,
        }
        return write_event("info", {"asr": [program]})
