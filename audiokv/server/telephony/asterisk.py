"""Asterisk's chan_websocket: control messages as text, plain or JSON, and raw audio as binary.

Source: the channel driver's documentation (Asterisk 20.16, 21.11, 22.6, 23.0 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.telephony.call_audio import CallAudio
from audiokv.server.telephony.loose_json import MAX_TEXT_CHARS, Node, printable
from audiokv.server.telephony.raw_call import RawCallDialect
from audiokv.streaming.audio_format import Encoding
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command

_SLIN_HZ = {
    "slin": 8_000,
    "slin8": 8_000,
    "slin12": 12_000,
    "slin16": 16_000,
    "slin24": 24_000,
    "slin32": 32_000,
    "slin44": 44_100,
    "slin48": 48_000,
    "slin96": 96_000,
    "slin192": 192_000,
}
_G711 = {"ulaw": Encoding.MULAW, "alaw": Encoding.ALAW}
_END_EVENTS = frozenset({"HANGUP", "MEDIA_STOP"})
_TOLD = {"channel_id": "call", "connection_id": "connection_id", "channel": "channel"}


class AsteriskDialect(RawCallDialect):
    """One channel of Asterisk, from MEDIA_START to the close of its connection."""

    source = "asterisk"

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a control message or audio.

        Raises:
            MessageError: The message is none of Asterisk's, or the codec cannot be decoded.
        """
        if isinstance(message, bytes):
            return self._take(message, "MEDIA_START")
        event, fields = _read_control(message)
        if event == "MEDIA_START":
            return self._start(fields)
        if self._audio is None:
            raise MessageError(
                "start_expected",
                "The first message was not MEDIA_START.",
                "Dial this address with Asterisk's WebSocket channel.",
            )
        return self._stop() if event in _END_EVENTS else []

    def _start(self, fields: Node) -> list[Command]:
        if self._audio is not None:
            raise MessageError("second_start", "MEDIA_START came twice.", "Use a new connection.")
        self._audio = _audio_of(fields.text("format"))
        told = {name: fields.text(field) for field, name in _TOLD.items()}
        wishes = self._wishes.joined(fields.node("channel_variables"), told)
        return [wishes.begin(self._audio.fmt)]


def _audio_of(codec: str) -> CallAudio:
    if codec in _SLIN_HZ:
        return CallAudio(Encoding.PCM_S16LE, _SLIN_HZ[codec])
    if codec in _G711:
        return CallAudio(_G711[codec], 8_000)
    raise MessageError(
        "unsupported_codec",
        f"Asterisk sends {codec[:40]!r}.",
        "Dial with c(slin16), c(slin), c(ulaw) or c(alaw).",
    )


def _read_control(text: str) -> tuple[str, Node]:
    """Return the event and fields of ``NAME key:value key:value`` or of the same as JSON."""
    if text.lstrip().startswith("{"):
        message = Node.parse(text)
        return message.text("event", "command"), message
    event, *words = text.split()[:64] or [""]
    pairs = (word.partition(":") for word in words)
    fields: dict[str, object] = {
        printable(name): printable(value)[:MAX_TEXT_CHARS] for name, found, value in pairs if found
    }
    return event, Node(fields, "MEDIA_START")
