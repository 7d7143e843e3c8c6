"""jambonz's custom speech-to-text: ``start``, linear audio, ``stop``; transcripts go back.

The server closes the connection after ``stop``. Source: jambonz' guide to custom speech vendors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Farewell
from audiokv.server.telephony.call_audio import CallAudio, encoding_named
from audiokv.server.telephony.loose_json import MAX_TEXT_CHARS, Node, printable
from audiokv.server.telephony.raw_call import RawCallDialect
from audiokv.server.telephony.wishes import Wishes
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import MAX_PROMPT_CHARS

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Event
    from audiokv.server.refusals import RefusalError

DEFAULT_RATE_HZ = 8_000
_MAX_HINTS = 500


class JambonzSpeechDialect(RawCallDialect):
    """One recognition that jambonz asks for."""

    source = "jambonz-stt"

    def __init__(self) -> None:
        super().__init__()
        self._tag = ""
        self._is_interim = False

    def hear(self, message: str | bytes) -> list[Command]:
        """Take ``start``, ``stop`` or audio.

        Raises:
            MessageError: The message is none of these, or comes out of turn.
        """
        if isinstance(message, bytes):
            return self._take(message, "start")
        fields = Node.parse(message)
        kind = fields.text("type")
        if kind == "start":
            return self._start(fields)
        if kind == "stop":
            return self._stop()
        return []

    def _start(self, fields: Node) -> list[Command]:
        if self._audio is not None:
            raise MessageError("second_start", "start came twice.", "Use a new connection.")
        encoding = encoding_named(fields.text("encoding") or "linear16")
        self._audio = CallAudio(encoding, fields.whole("sampleRateHz") or DEFAULT_RATE_HZ)
        self._tag = fields.text("language")
        self._is_interim = fields.truth("interimResults")
        wishes = self._wishes.joined(fields, {})
        prompt = wishes.prompt or _hints(fields.node("options"))
        return [Wishes(wishes.language, prompt, wishes.metadata).begin(self._audio.fmt)]

    def say(self, event: Event) -> list[str | bytes]:
        """Send captions back; partial ones only where ``interimResults`` asked for them."""
        if not isinstance(event, Caption) or not (event.is_final or self._is_interim):
            return []
        confidence = min((word.confidence for word in event.words), default=0.0)
        transcription = {
            "type": "transcription",
            "is_final": event.is_final,
            "alternatives": [{"transcript": event.text, "confidence": round(confidence, 3)}],
            "language": self._tag or event.language or "",
            "channel": 1,
        }
        return [json.dumps(transcription, ensure_ascii=False)]

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Send the reason as jambonz' error message, then close."""
        error = json.dumps({"type": "error", "error": str(refusal)}, ensure_ascii=False)
        return Farewell([error], refusal.close_code, refusal.code)


def _hints(options: Node) -> str:
    """Return the hints as a prompt: plain phrases, or objects with a ``phrase``."""
    phrases = []
    for hint in options.items("hints", max_items=_MAX_HINTS):
        phrase = hint.get("phrase") if isinstance(hint, dict) else hint
        if isinstance(phrase, str):
            phrases.append(printable(phrase)[:MAX_TEXT_CHARS])
    return ", ".join(phrases)[:MAX_PROMPT_CHARS]
