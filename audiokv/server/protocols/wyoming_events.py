"""The framing of Wyoming: a line of JSON, then data and payload of the lengths it names.

Source: the README of the wyoming project, and its Python package.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audiokv.server.protocols.options import Options
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LINE_BYTES = 16_384
MAX_DATA_BYTES = 65_536
MAX_PAYLOAD_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class WyomingEvent:
    """One event.

    Attributes:
        kind: Its type.
        data: Its fields.
        payload: Its audio.
    """

    kind: str
    data: Mapping[str, object] = field(default_factory=dict)
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class _Header:
    kind: str
    data: dict[str, object]
    data_bytes: int
    payload_bytes: int


class EventReader:
    """Cuts a byte stream into events; holds at most one event that is not complete."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._header: _Header | None = None

    def push(self, piece: bytes) -> list[WyomingEvent]:
        """Return the events that a piece of the stream completes.

        Raises:
            MessageError: What came is not Wyoming, or an event is too large.
        """
        self._held += piece
        events = []
        while (event := self._next()) is not None:
            events.append(event)
        return events

    def _next(self) -> WyomingEvent | None:
        if self._header is None:
            line = self._take_line()
            if line is None:
                return None
            self._header = _read_header(line)
        header = self._header
        if len(self._held) < header.data_bytes + header.payload_bytes:
            return None
        data = self._take(header.data_bytes)
        payload = self._take(header.payload_bytes)
        self._header = None
        more = _parse(data) if data else {}
        return WyomingEvent(header.kind, {**header.data, **more}, payload)

    def _take_line(self) -> bytes | None:
        end = self._held.find(b"\n", 0, MAX_LINE_BYTES)
        if end >= 0:
            line = self._take(end + 1)
            return line if line.strip() else self._take_line()
        if len(self._held) >= MAX_LINE_BYTES:
            raise MessageError(
                "not_wyoming",
                f"The first {MAX_LINE_BYTES} bytes of an event have no end of line.",
                "Send each event as a line of JSON.",
            )
        return None

    def _take(self, n_bytes: int) -> bytes:
        taken = bytes(self._held[:n_bytes])
        del self._held[:n_bytes]
        return taken


def _read_header(line: bytes) -> _Header:
    values = _parse(line)
    kind = values.get("type")
    data = values.get("data")
    if not isinstance(kind, str) or not isinstance(data, dict | None):
        raise MessageError(
            "not_wyoming", "An event lacks its type, or its data is no object.", "Send both."
        )
    lengths = Options("the event", values)
    return _Header(
        kind,
        data or {},
        lengths.whole("data_length", default=0, high=MAX_DATA_BYTES),
        lengths.whole("payload_length", default=0, high=MAX_PAYLOAD_BYTES),
    )


def _parse(text: bytes) -> dict[str, object]:
    try:
        return parse_object(text.decode())
    except UnicodeDecodeError:
        raise MessageError(
            "not_wyoming", "An event is not UTF-8.", "Send each event as a line of JSON."
        ) from None


def write_event(kind: str, data: Mapping[str, object] | None = None) -> bytes:
    """Return an event without payload as it goes over the wire."""
    body = json.dumps(data, ensure_ascii=False).encode() if data else b""
    header = {"type": kind, **({"data_length": len(body)} if body else {})}
    return json.dumps(header).encode() + b"\n" + body
