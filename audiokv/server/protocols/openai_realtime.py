"""OpenAI's Realtime API, transcription sessions only: ``/v1/realtime?intent=transcription``.

A delta carries committed words only, so that deltas never have to be taken back. They come while
the turn is spoken. The settings that ``session.updated`` shows are those in effect: threshold and
padding of the voice detector cannot be changed. Source: the Realtime API reference, as of its
general availability and of its beta.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Change,
    Farewell,
    Finalize,
    Finalized,
    PlainDialect,
    Reply,
)
from audiokv.server.protocols.openai_session import (
    SessionSettings,
    shown_beta_settings,
    shown_settings,
    update_beta_settings,
    update_settings,
)
from audiokv.server.protocols.openai_turns import Turns
from audiokv.server.refusals import CloseCode
from audiokv.streaming.captions import Caption, SpeechChange
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import parse_object, shown
from audiokv.streaming.messages import AUTO_LANGUAGE, Done, Progress

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError

IDLE_TIMEOUT_S = 900.0
_BETA_PROTOCOL = "openai-beta.realtime-v1"
_MAX_ID_CHARS = 512


class OpenAIRealtimeDialect(PlainDialect):
    """One transcription session.

    Args:
        session_id: What the session is called.
    """

    idle_timeout_s: float | None = IDLE_TIMEOUT_S

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._settings = SessionSettings()
        self._languages: frozenset[str] = frozenset()
        self._is_beta = False
        self._is_begun = False
        self._event_ids = itertools.count(1)
        self._turns = Turns(pause_ms=0, silence_ms=self._settings.silence_ms)

    def open(self, opening: Opening) -> list[Command]:
        """Tell that the session exists, and what it is set to.

        Raises:
            MessageError: Another intent than transcription.
        """
        intent = opening.query.get("intent", ("transcription",))[-1]
        if intent != "transcription":
            raise MessageError(
                "unsupported_option",
                f"The intent {shown(intent)} is not supported.",
                "Set it to transcription.",
            )
        self._is_beta = "realtime=v1" in opening.headers.get("openai-beta", "") or (
            _BETA_PROTOCOL in opening.headers.get("sec-websocket-protocol", "")
        )
        self._languages = opening.languages
        self._settings = replace(self._settings, model=opening.model)
        self._turns = Turns(pause_ms=opening.pause_ms, silence_ms=self._settings.silence_ms)
        return [Reply(self._session_event("created"))]

    def hear(self, message: str | bytes) -> list[Command]:
        """Take an event; a wrong one is answered with an ``error``, and the session goes on."""
        event_id: str | None = None
        try:
            values = _read(message)
            event_id = _short_text(values.get("event_id"))
            return self._obey(values)
        except MessageError as error:
            text = f"{error.message} {error.remedy}"
            return [Reply(self._error("invalid_request_error", error.code, text, event_id))]

    def _obey(self, values: dict[str, object]) -> list[Command]:
        match values.get("type"):
            case "input_audio_buffer.append":
                return self._append(values.get("audio"))
            case "input_audio_buffer.commit":
                return self._commit()
            case "input_audio_buffer.clear":
                return self._clear()
            case "session.update":
                return self._update(values.get("session"), is_beta=False)
            case "transcription_session.update":
                return self._update(values.get("session"), is_beta=True)
            case kind:
                raise MessageError(
                    "unknown_type",
                    f"The event type {shown(kind)} is not known here.",
                    "Send session.update or input_audio_buffer.append, .commit or .clear.",
                )

    def _append(self, audio: object) -> list[Command]:
        if not isinstance(audio, str):
            raise MessageError("bad_audio", "The event has no audio.", "Send it as base64.")
        try:
            data = base64.b64decode(audio, validate=True)
        except (binascii.Error, ValueError):
            raise MessageError(
                "bad_audio", "The audio is not base64.", "Encode it with the standard alphabet."
            ) from None
        if not data:
            return []
        self._turns.has_audio = True
        return [*self._begin(), Audio(data)]

    def _begin(self) -> list[Command]:
        if self._is_begun:
            return []
        self._is_begun = True
        settings = self._settings
        return [Begin(settings.fmt, language=settings.language, prompt=settings.prompt)]

    def _commit(self) -> list[Command]:
        if not self._turns.has_audio:
            raise MessageError(
                "input_audio_buffer_commit_empty",
                "The input audio buffer is empty.",
                "Append audio before committing it.",
            )
        return [*map(Reply, self._written(self._turns.commit())), Finalize()]

    def _clear(self) -> list[Command]:
        cleared = Reply(self._event("input_audio_buffer.cleared"))
        if not self._turns.has_audio:
            return [cleared]
        self._turns.clear()
        return [Finalize(), cleared]

    def _update(self, session: object, *, is_beta: bool) -> list[Command]:
        if not isinstance(session, dict):
            raise MessageError("bad_session", "The event has no session.", "Send an object.")
        update = update_beta_settings if is_beta else update_settings
        settings = update(self._settings, session, self._languages)
        if self._is_begun and settings.fmt != self._settings.fmt:
            raise MessageError(
                "late_format",
                "The audio format changed after audio had come.",
                "Set it first, or open a new session.",
            )
        self._is_beta = is_beta
        change: list[Command] = []
        if self._is_begun:
            change = [Change(settings.language or AUTO_LANGUAGE, settings.prompt)]
        self._settings = settings
        self._turns.silence_ms = settings.silence_ms
        return [*change, Reply(self._session_event("updated"))]

    def say(self, event: Event) -> list[str | bytes]:
        """Return what the events mean for the turn that is spoken."""
        match event:
            case Caption():
                return self._written(self._turns.hear(event))
            case SpeechChange():
                return self._written(self._turns.change(event))
            case Progress():
                return self._written(self._turns.move(event.processed_ms))
            case Finalized():
                return self._written(self._turns.finalized())
            case Done():
                return self._written(self._turns.end())
            case _:
                return []

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Tell why in an ``error``."""
        is_full = refusal.close_code == CloseCode.FULL
        is_ours = refusal.close_code in (CloseCode.INTERNAL, CloseCode.GOING_AWAY)
        kind = "server_error" if is_ours else "invalid_request_error"
        error = self._error(
            "rate_limit_error" if is_full else kind,
            refusal.code,
            f"{refusal.message} {refusal.remedy}",
            None,
        )
        return Farewell([error], refusal.close_code, refusal.close_reason)

    def _written(self, events: list[tuple[str, dict[str, object]]]) -> list[str | bytes]:
        beta_only = {"conversation.item.created"}
        ga_only = {"conversation.item.added", "conversation.item.done"}
        hidden = ga_only if self._is_beta else beta_only
        return [self._event(kind, **fields) for kind, fields in events if kind not in hidden]

    def _session_event(self, what: str) -> str:
        if self._is_beta:
            session = shown_beta_settings(self._settings, self._session_id)
            return self._event(f"transcription_session.{what}", session=session)
        session = shown_settings(self._settings, self._session_id)
        return self._event(f"session.{what}", session=session)

    def _error(self, kind: str, code: str, text: str, event_id: str | None) -> str:
        error = {
            "type": kind,
            "code": code,
            "message": text,
            "param": None,
            "event_id": event_id,
        }
        return self._event("error", error=error)

    def _event(self, kind: str, **fields: object) -> str:
        values = {"type": kind, "event_id": f"event_{next(self._event_ids)}", **fields}
        return json.dumps(values)


def _read(message: str | bytes) -> dict[str, object]:
    if isinstance(message, bytes):
        raise MessageError(
            "binary_message",
            f"A binary message of {len(message)} bytes came.",
            "Send audio in input_audio_buffer.append, as base64.",
        )
    return parse_object(message)


def _short_text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _MAX_ID_CHARS else None
