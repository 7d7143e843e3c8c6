"""The protocol of WhisperLive: float samples in, the latest segments out.

Source: ``whisper_live/server.py``, ``whisper_live/backend/base.py`` and ``whisper_live/client.py``
of the WhisperLive project.
"""

from __future__ import annotations

import json
import math
from collections import deque
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
from audiokv.server.refusals import CloseCode
from audiokv.streaming.audio_format import SAMPLE_RATE_HZ, AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import parse_object
from audiokv.streaming.messages import Ready

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError

END_OF_AUDIO = b"END_OF_AUDIO"
DEFAULT_SEGMENTS = 10
MAX_SEGMENTS = 1_000
# The client keeps segments only where the server says that it is this one.
BACKEND = "faster_whisper"
_ENCODINGS = {"float32": Encoding.PCM_F32LE, "int16": Encoding.PCM_S16LE}
# What tunes WhisperLive's own recognition, with what its client sends unless told otherwise. There
# is nothing here that they could tune, so another value is answered with a warning.
_TUNING: dict[str, object] = {
    "use_vad": True,
    "vad_parameters": None,
    "no_speech_thresh": 0.45,
    "clip_audio": False,
    "same_output_threshold": 10,
    "max_clients": 4,
    "max_connection_time": 600,
}
_UNSUPPORTED = ("enable_translation", "enable_diarization", "known_speakers")
# What names a model, or says more about what is off.
_NAMES = ("model", "target_language", "max_speakers")


class WhisperLiveDialect(PlainDialect):
    """One connection of a WhisperLive client."""

    def __init__(self) -> None:
        self._uid = ""
        self._is_begun = False
        self._language: str | None = None
        self._has_words = False
        self._completed: deque[dict[str, object]] = deque(maxlen=DEFAULT_SEGMENTS)
        self._end_ms = 0

    def open(self, opening: Opening) -> list[Command]:
        """Wait for the options."""
        del opening
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take the options, audio or its end.

        Raises:
            MessageError: The options are not supported, or something else came.
        """
        if not self._is_begun:
            return self._begin(message)
        if isinstance(message, str):
            raise MessageError(
                "unknown_message",
                f"A text message of {len(message)} characters came after the options.",
                "Send audio as binary messages.",
            )
        return [Stop()] if message == END_OF_AUDIO else [Audio(message)]

    def _begin(self, message: str | bytes) -> list[Command]:
        if isinstance(message, bytes):
            raise MessageError(
                "options_expected",
                "The first message was not text.",
                "Send the options first, as a JSON object.",
            )
        options = Options("the options", parse_object(message))
        self._uid = options.text("uid")
        options.choice("task", ("transcribe",), default="transcribe")
        warned = [name for name, usual in _TUNING.items() if not options.takes(name, usual)]
        for name in _UNSUPPORTED:
            if options.has_items(name):
                raise MessageError(
                    "unsupported_option", f"The option {name!r} is not supported.", "Leave it out."
                )
        options.drop(*_NAMES)
        encoding = _ENCODINGS[options.choice("audio_format", _ENCODINGS, default="float32")]
        self._language = base_language(options.text("language")) or None
        self._has_words = options.flag("word_timestamps", default=False)
        n_segments = options.whole(
            "send_last_n_segments", default=DEFAULT_SEGMENTS, low=1, high=MAX_SEGMENTS
        )
        self._completed = deque(maxlen=n_segments)
        terms = (options.text("initial_prompt"), options.text("hotwords"))
        options.finish()
        self._is_begun = True
        fmt = AudioFormat(encoding, SAMPLE_RATE_HZ)
        prompt = ", ".join(filter(None, terms))
        warnings = [Reply(self._status("WARNING", _warning(name))) for name in warned]
        return [Begin(fmt, language=self._language, prompt=prompt), *warnings]

    def say(self, event: Event) -> list[str | bytes]:
        """Return the latest segments with each caption."""
        match event:
            case Ready():
                return [self._packed(message="SERVER_READY", backend=BACKEND)]
            case Caption():
                return [*self._tell_language(event), *self._tell(event)]
            case _:
                return []

    def _tell_language(self, caption: Caption) -> list[str | bytes]:
        """Return the language once it is known, unless the client named it."""
        if self._language is not None or caption.language is None:
            return []
        self._language = caption.language
        return [self._packed(language=caption.language, language_prob=1.0)]

    def _tell(self, caption: Caption) -> list[str | bytes]:
        segment = self._segment(caption)
        if caption.is_final:
            self._end_ms = max(self._end_ms, caption.end_ms)
            if not caption.words:
                return []
            self._completed.append(segment)
            return [self._packed(segments=list(self._completed))]
        if not caption.words:
            return []
        n_before = (self._completed.maxlen or 1) - 1
        before = list(self._completed)[-n_before:] if n_before else []
        return [self._packed(segments=[*before, segment])]

    def _segment(self, caption: Caption) -> dict[str, object]:
        # The client drops a segment that begins before the one before has ended.
        start_ms = max(self._end_ms, caption.start_ms)
        segment: dict[str, object] = {
            "start": f"{start_ms / 1000:.3f}",
            "end": f"{max(start_ms, caption.end_ms) / 1000:.3f}",
            "text": caption.text,
            "completed": caption.is_final,
        }
        if caption.speaker is not None:
            segment["speaker"] = caption.speaker
        if self._has_words:
            segment["words"] = [
                {
                    "word": word.text,
                    "start": word.start_ms / 1000,
                    "end": word.end_ms / 1000,
                    "probability": word.confidence,
                }
                for word in caption.words
            ]
        return segment

    def done(self) -> Farewell:
        """Say that everything was said."""
        return Farewell([self._packed(message="DISCONNECT")])

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Tell why; who comes to a full server is told to wait."""
        if refusal.close_code == CloseCode.FULL:
            minutes = math.ceil((refusal.retry_after_s or 0) / 60)
            return Farewell([self._status("WAIT", minutes)], refusal.close_code, refusal.code)
        text = f"{refusal.message} {refusal.remedy}"
        return Farewell([self._status("ERROR", text)], refusal.close_code, refusal.code)

    def _status(self, status: str, message: object) -> str:
        return self._packed(status=status, message=message)

    def _packed(self, **fields: object) -> str:
        return json.dumps({"uid": self._uid, **fields})


def _warning(name: str) -> str:
    return f"The option {name!r} changes nothing here: its usual value stays in effect."
