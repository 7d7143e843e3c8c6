"""Encoding and decoding of the native protocol, version 1, as docs/protocol.md specifies it."""

from __future__ import annotations

import json
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from audiokv.streaming.cache_message import read_counters
from audiokv.streaming.captions import Caption, Notice, SpeechChange, Word
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import Fields, parse_object, shown
from audiokv.streaming.message_types import (
    AUTO_LANGUAGE,
    BEARER_SUBPROTOCOL_PREFIX,
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    ClientMessage,
    Done,
    ErrorReport,
    Finalize,
    Keepalive,
    Limits,
    Progress,
    Ready,
    Resume,
    ServerMessage,
    Start,
    Stop,
    Update,
)
from audiokv.streaming.recognition_counts import read_recognition

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

__all__ = [
    "AUTO_LANGUAGE",
    "BEARER_SUBPROTOCOL_PREFIX",
    "MAX_METADATA",
    "MAX_METADATA_CHARS",
    "MAX_PROMPT_CHARS",
    "PROTOCOL_VERSION",
    "SUBPROTOCOL",
    "Caption",
    "ClientMessage",
    "Done",
    "ErrorReport",
    "Finalize",
    "Keepalive",
    "Limits",
    "Notice",
    "Progress",
    "Ready",
    "Resume",
    "ServerMessage",
    "SpeechChange",
    "Start",
    "Stop",
    "Update",
    "Word",
    "decode_client",
    "decode_server",
    "encode",
]

MAX_PROMPT_CHARS = 2_000
MAX_METADATA = 64
MAX_METADATA_CHARS = 2_000
_MAX_NAME_CHARS = 64
_MAX_TOKEN_CHARS = 128
_MAX_CHANNEL_LABELS = 2
_MAX_WORDS = 10_000
_MAX_LANGUAGES = 1_000

_Message = TypeVar("_Message")


def decode_client(text: str) -> ClientMessage:
    """Return the message a source sent.

    Raises:
        MessageError: The text is not a message of the protocol; nothing else is ever raised.
    """
    return _decode(text, _CLIENT_READERS)


def decode_server(text: str) -> ServerMessage:
    """Return the message a server sent.

    Raises:
        MessageError: The text is not a message of the protocol; nothing else is ever raised.
    """
    return _decode(text, _SERVER_READERS)


def _decode(text: str, readers: dict[str, Callable[[Fields], _Message]]) -> _Message:
    values = parse_object(text)
    kind = values.pop("type", None)
    if not isinstance(kind, str) or kind not in readers:
        raise MessageError(
            "unknown_type",
            f"The message type {shown(kind)} is not known here.",
            f"Send one of {', '.join(readers)}.",
        )
    fields = Fields(kind, values)
    message = readers[kind](fields)
    fields.finish()
    return message


def _version(fields: Fields) -> int:
    version = fields.whole("version", default=PROTOCOL_VERSION)
    if version != PROTOCOL_VERSION:
        raise MessageError(
            "unsupported_version",
            f"Version {version} of the protocol is not spoken here.",
            f"Use version {PROTOCOL_VERSION}.",
        )
    return version


def _start(fields: Fields) -> Start:
    return Start(
        version=_version(fields),
        encoding=fields.text("encoding", max_chars=_MAX_NAME_CHARS),
        sample_rate=fields.whole("sample_rate"),
        channels=fields.whole("channels", default=1),
        language=fields.text("language", default=AUTO_LANGUAGE, max_chars=_MAX_NAME_CHARS),
        profile=fields.text("profile", default="default", max_chars=_MAX_NAME_CHARS),
        prompt=fields.text("prompt", default="", max_chars=MAX_PROMPT_CHARS),
        channel_labels=fields.texts(
            "channel_labels",
            default=[],
            max_items=_MAX_CHANNEL_LABELS,
            max_chars=_MAX_NAME_CHARS,
        ),
        resume=_resume(fields.optional_nested("resume")),
    )


def _resume(fields: Fields | None) -> Resume | None:
    if fields is None:
        return None
    resume = Resume(
        token=fields.text("token", max_chars=_MAX_TOKEN_CHARS), last_seq=fields.whole("last_seq")
    )
    fields.finish()
    return resume


def _update(fields: Fields) -> Update:
    return Update(
        language=fields.optional_text("language", max_chars=_MAX_NAME_CHARS),
        prompt=fields.optional_text("prompt", max_chars=MAX_PROMPT_CHARS),
        profile=fields.optional_text("profile", max_chars=_MAX_NAME_CHARS),
    )


def _ready(fields: Fields) -> Ready:
    limits = fields.nested("limits")
    ready = Ready(
        version=_version(fields),
        stream=fields.text("stream", max_chars=_MAX_TOKEN_CHARS),
        resume_token=fields.optional_text("resume_token", max_chars=_MAX_TOKEN_CHARS),
        resumed=fields.truth("resumed", default=False),
        received_samples=fields.whole("received_samples", default=0),
        model=fields.text("model"),
        languages=fields.texts("languages", max_items=_MAX_LANGUAGES, max_chars=_MAX_NAME_CHARS),
        limits=Limits(
            max_message_bytes=limits.whole("max_message_bytes"),
            idle_timeout_s=limits.seconds("idle_timeout_s"),
            resume_window_s=limits.seconds("resume_window_s"),
            max_unacknowledged_ms=limits.whole("max_unacknowledged_ms"),
        ),
        metadata=fields.optional_texts_by_name(
            "metadata", max_items=MAX_METADATA, max_chars=MAX_METADATA_CHARS
        ),
    )
    limits.finish()
    return ready


def _word(fields: Fields) -> Word:
    word = Word(
        text=fields.text("text"),
        start_ms=fields.whole("start_ms"),
        end_ms=fields.whole("end_ms"),
        confidence=fields.fraction("confidence"),
        is_final=fields.truth("final"),
        space_before=fields.truth("space_before", default=True),
    )
    fields.finish()
    return word


def _caption(fields: Fields) -> Caption:
    return Caption(
        seq=fields.whole("seq"),
        segment=fields.whole("segment"),
        revision=fields.whole("revision"),
        is_final=fields.truth("final"),
        start_ms=fields.whole("start_ms"),
        end_ms=fields.whole("end_ms"),
        text=fields.text("text"),
        language=fields.optional_text("language", max_chars=_MAX_NAME_CHARS),
        speaker=fields.optional_text("speaker"),
        words=tuple(_word(item) for item in fields.objects("words", max_items=_MAX_WORDS)),
    )


def _progress(fields: Fields) -> Progress:
    return Progress(
        received_ms=fields.whole("received_ms"),
        received_samples=fields.whole("received_samples"),
        processed_ms=fields.whole("processed_ms"),
        lag_ms=fields.whole("lag_ms"),
        cache=read_counters(fields.optional_nested("cache")),
        recognition=read_recognition(fields.optional_nested("recognition")),
    )


def _notice(fields: Fields) -> Notice:
    return Notice(
        code=fields.text("code"),
        message=fields.text("message"),
        remedy=fields.text("remedy", default=""),
    )


def _error_report(fields: Fields) -> ErrorReport:
    return ErrorReport(
        code=fields.text("code"),
        message=fields.text("message"),
        remedy=fields.text("remedy", default=""),
        retry_after_s=fields.optional_seconds("retry_after_s"),
    )


_CLIENT_READERS: dict[str, Callable[[Fields], ClientMessage]] = {
    "start": _start,
    "update": _update,
    "finalize": lambda _: Finalize(),
    "keepalive": lambda _: Keepalive(),
    "stop": lambda _: Stop(),
}

_SERVER_READERS: dict[str, Callable[[Fields], ServerMessage]] = {
    "ready": _ready,
    "caption": _caption,
    "speech": lambda fields: SpeechChange(fields.truth("on"), fields.whole("at_ms")),
    "progress": _progress,
    "warning": _notice,
    "error": _error_report,
    "done": lambda fields: Done(fields.whole("received_ms"), fields.whole("segments")),
}


_KINDS: dict[type, str] = {
    Start: "start",
    Update: "update",
    Finalize: "finalize",
    Keepalive: "keepalive",
    Stop: "stop",
    Ready: "ready",
    Progress: "progress",
    Notice: "warning",
    ErrorReport: "error",
    Done: "done",
}


def encode(message: ClientMessage | ServerMessage) -> str:
    """Return a message as the text that goes over the wire.

    Raises:
        ValueError: A number of the message is not finite.
    """
    match message:
        case Caption():
            values = _caption_to_wire(message)
        case SpeechChange():
            values = {"type": "speech", "on": message.is_on, "at_ms": message.at_ms}
        case _:
            values = {"type": _KINDS[type(message)], **_present_fields(message)}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _present_fields(message: DataclassInstance) -> dict[str, object]:
    """Return the fields that are set; field names are the names on the wire."""
    values = {field.name: getattr(message, field.name) for field in fields_of(message)}
    return {
        name: _present_fields(value) if _is_object(value) else value
        for name, value in values.items()
        if value is not None
    }


def _is_object(value: object) -> TypeGuard[DataclassInstance]:
    return is_dataclass(value)


def _caption_to_wire(caption: Caption) -> dict[str, object]:
    return {
        "type": "caption",
        "seq": caption.seq,
        "segment": caption.segment,
        "revision": caption.revision,
        "final": caption.is_final,
        "start_ms": caption.start_ms,
        "end_ms": caption.end_ms,
        "text": caption.text,
        "language": caption.language,
        "speaker": caption.speaker,
        "words": [
            {
                "text": word.text,
                "start_ms": word.start_ms,
                "end_ms": word.end_ms,
                "confidence": word.confidence,
                "final": word.is_final,
                "space_before": word.space_before,
            }
            for word in caption.words
        ],
    }
