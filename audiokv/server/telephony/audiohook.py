"""Genesys Cloud's AudioHook, version 2: ``open``, mu-law audio, transcripts back, ``close``.

Source: the protocol's reference in Genesys' developer centre.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

from audiokv.server.protocols.dialect import (
    Audio,
    Change,
    Farewell,
    Finalize,
    Gap,
    PlainDialect,
    Reply,
    Stop,
)
from audiokv.server.telephony.call_audio import CallAudio
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.media_timeline import MAX_GAP_MS
from audiokv.server.telephony.quiet import CALL_IDLE_TIMEOUT_S
from audiokv.server.telephony.wishes import Wishes, plain_language
from audiokv.streaming.audio_format import Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError
    from audiokv.streaming.captions import Word

VERSION = "2"
_NO_CALL = "00000000-0000-0000-0000-000000000000"  # Genesys tries whether the server answers
_SIDES = ("external", "internal")
_MAX_OFFERS = 16
_DURATION = re.compile(r"PT(\d{1,7})(?:\.(\d{1,9}))?S", re.ASCII)
_RATE_HZ = 8_000
_TOLD = {"ani": "from", "dnis": "to", "aniName": "caller"}


@dataclass(frozen=True, slots=True)
class _Media:
    """Audio that Genesys offers: its sides of the call in the order of the channels."""

    sides: tuple[str, ...]
    rate_hz: int

    def to_wire(self) -> dict[str, object]:
        return {
            "type": "audio",
            "format": "PCMU",
            "channels": self.sides,
            "rate": self.rate_hz,
        }


class AudioHookDialect(PlainDialect):
    """One session of AudioHook.

    Args:
        check: Raises `RefusalError` for an opening that may not come in.
    """

    source = "audiohook"

    idle_timeout_s: float | None = CALL_IDLE_TIMEOUT_S
    can_wait: bool = False

    def __init__(self, check: Callable[[Opening], None]) -> None:
        self._check = check
        self._wishes = Wishes()
        self._session = _NO_CALL
        self._seq = 0
        self._client_seq = 0
        self._channel = _SIDES[0]
        self._audio: CallAudio | None = None
        self._is_open = False
        self._is_silent = False

    def open(self, opening: Opening) -> list[Command]:
        """Check who connects, then read the address.

        Raises:
            RefusalError: The client may not come in.
        """
        self._check(opening)
        self._wishes = Wishes.of_opening(opening, self.source)
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a message or audio.

        Raises:
            MessageError: The message is none of the protocol, or comes out of turn.
        """
        if isinstance(message, bytes):
            if self._audio is None:
                raise _open_expected("Audio")
            self._is_silent = False
            return [Audio(self._audio.push(message))]
        fields = Node.parse(message)
        self._client_seq = fields.whole("seq") or self._client_seq
        kind, parameters = fields.text("type"), fields.node("parameters")
        if kind == "open":
            return self._open(fields.text("id"), parameters)
        if not self._is_open:
            raise _open_expected(f"A message of type {kind[:40]!r}")
        return self._obey(kind, parameters)

    def _obey(self, kind: str, parameters: Node) -> list[Command]:
        match kind:
            case "ping":
                return [Reply(self._message("pong", {}))]
            case "close":
                return [Stop()]
            case "update":
                return self._update(parameters)
            case "discarded" | "resumed":
                gap_ms = _milliseconds(parameters.text("discarded"))
                return [Gap(gap_ms)] if self._audio is not None and gap_ms else []
            case _:
                return []  # paused, error, and what comes to be

    def miss(self, more_ms: int) -> list[Command]:
        """End the open caption: Genesys itself tells what it discarded."""
        del more_ms
        is_new = self._audio is not None and not self._is_silent
        self._is_silent = True
        return [Finalize()] if is_new else []

    def _open(self, session: str, parameters: Node) -> list[Command]:
        if self._is_open:
            raise MessageError("second_open", "open came twice.", "Use a new connection.")
        offer = _choose(parameters.nodes("media", max_items=_MAX_OFFERS))
        self._session, self._is_open = session, True
        opened = Reply(self._message("opened", {"startPaused": False, "media": [offer.to_wire()]}))
        if parameters.text("conversationId") == _NO_CALL:
            return [opened]
        self._channel = offer.sides[0]
        self._audio = CallAudio(Encoding.MULAW, offer.rate_hz, len(offer.sides))
        participant = parameters.node("participant")
        told = {name: participant.text(field) for field, name in _TOLD.items()}
        told["call"] = parameters.text("conversationId")
        labels = offer.sides if len(offer.sides) == len(_SIDES) else ()
        return [self._wishes.joined(parameters, told).begin(self._audio.fmt, labels), opened]

    def _update(self, parameters: Node) -> list[Command]:
        language = plain_language(parameters.text("language"))
        change = [Change(language=language)] if language and self._audio is not None else []
        return [*change, Reply(self._message("updated", {}))]

    def _message(self, kind: str, parameters: Mapping[str, object]) -> str:
        self._seq += 1
        values = {
            "version": VERSION,
            "type": kind,
            "seq": self._seq,
            "clientseq": self._client_seq,
            "id": self._session,
            "parameters": parameters,
        }
        return json.dumps(values, ensure_ascii=False)

    def say(self, event: Event) -> list[str | bytes]:
        """Send captions back as transcripts."""
        if not isinstance(event, Caption):
            return []
        channel = event.speaker if event.speaker in _SIDES else self._channel
        words = event.words
        interpretation = {
            "type": "display",
            "transcript": event.text,
            "tokens": [_token(word) for word in words],
        }
        alternative = {
            "confidence": round(sum(w.confidence for w in words) / max(len(words), 1), 3),
            **({"languages": [event.language]} if event.language else {}),
            "interpretations": [interpretation],
        }
        transcript = {
            "id": str(uuid5(NAMESPACE_OID, f"{self._session}/{event.segment}")),
            "channel": channel,
            "isFinal": event.is_final,
            "offset": _duration(event.start_ms),
            "duration": _duration(event.end_ms - event.start_ms),
            "alternatives": [alternative],
        }
        entity = {"type": "transcript", "data": transcript}
        return [self._message("event", {"entities": [entity]})]

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Say why in a ``disconnect``, then close."""
        is_stranger = refusal.code in ("bad_signature", "not_authorized")
        reason = "unauthorized" if is_stranger else "error"
        message = self._message("disconnect", {"reason": reason, "info": str(refusal)})
        return Farewell([message], refusal.close_code, refusal.code)

    def done(self) -> Farewell:
        """Answer ``close`` once everything was said."""
        return Farewell([self._message("closed", {})], reason="done")


def _open_expected(what: str) -> MessageError:
    return MessageError("open_expected", f"{what} came before open.", "Send open first.")


def _choose(offers: list[Node]) -> _Media:
    """Return the offer with the most sides of the call; only mu-law is taken.

    Raises:
        MessageError: There is none.
    """
    media = [
        _Media(sides, offer.whole("rate") or _RATE_HZ)
        for offer in offers
        if offer.text("format") == "PCMU" and (sides := _sides(offer))
    ]
    if not media:
        raise MessageError(
            "no_media", "open offers no PCMU audio.", 'Offer {"format":"PCMU","rate":8000}.'
        )
    return max(media, key=lambda offer: len(offer.sides))


def _sides(offer: Node) -> tuple[str, ...]:
    """Return the sides that an offer's channels carry; none where one of them is not known."""
    named = offer.items("channels", max_items=len(_SIDES))
    known = tuple(side for side in named if isinstance(side, str) and side in _SIDES)
    return known if len(set(known)) == len(named) else ()


def _token(word: Word) -> dict[str, object]:
    return {
        "type": "word",
        "value": word.text,
        "confidence": round(word.confidence, 3),
        "offset": _duration(word.start_ms),
        "duration": _duration(word.end_ms - word.start_ms),
    }


def _duration(duration_ms: int) -> str:
    """Return milliseconds as an ISO 8601 duration in seconds."""
    return f"PT{duration_ms // 1000}.{duration_ms % 1000:03}S"


def _milliseconds(duration: str) -> int:
    """Return the length of a duration like ``PT1.23S``; 0 where there is none.

    Raises:
        MessageError: It is none, or longer than a stream's gap may be.
    """
    if not duration:
        return 0
    found = _DURATION.fullmatch(duration)
    duration_ms = int(found[1]) * 1000 + int(f"{found[2] or '':0<3}"[:3]) if found else -1
    if not 0 <= duration_ms <= MAX_GAP_MS:
        raise MessageError(
            "bad_duration", f"The duration {duration[:40]!r} cannot be.", "Send PT<seconds>S."
        )
    return duration_ms
