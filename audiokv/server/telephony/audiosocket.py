"""Asterisk's AudioSocket over TCP: frames of one byte kind, two bytes length, and a payload.

Asterisk gives a call up after two seconds in which neither side sent anything, so silence goes back
every second; it also gives up when its writes find no room, so the reader must never stop. Source:
Asterisk's AudioSocket documentation and channel driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from audiokv.server.protocols.dialect import Audio, Farewell
from audiokv.server.telephony.call_audio import CallAudio
from audiokv.server.telephony.raw_call import RawCallDialect
from audiokv.streaming.audio_format import Encoding
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command
    from audiokv.server.refusals import RefusalError

HEADER_BYTES = 3
HANGUP = 0x00
CALL_ID = 0x01
DIGIT = 0x03
ERROR = 0xFF
RATES_HZ = {
    0x10: 8_000,
    0x11: 12_000,
    0x12: 16_000,
    0x13: 24_000,
    0x14: 32_000,
    0x15: 44_100,
    0x16: 48_000,
    0x17: 96_000,
    0x18: 192_000,
}
SILENCE_MS = 20
_UUID_BYTES = 16
_SAMPLE_BYTES = 2
_ENDS = frozenset({HANGUP, ERROR})


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Return one frame as it goes over the wire.

    Args:
        kind: What it is, 0 to 255.
        payload: At most 65,535 bytes.
    """
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload


class AudioSocketDialect(RawCallDialect):
    """One call, from its identifier to the hang-up."""

    source = "audiosocket"

    tick_every_s: float | None = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()  # less than one frame after each `hear`
        self._call_id: str | None = None
        self._kind = min(RATES_HZ)
        self._is_over = False

    def hear(self, message: str | bytes) -> list[Command]:
        """Take bytes, split anywhere.

        Raises:
            MessageError: They are no AudioSocket, or the rate changes within a call.
        """
        self._received += message.encode() if isinstance(message, str) else message
        commands: list[Command] = []
        audio = b""
        at = 0
        while not self._is_over and len(self._received) - at >= HEADER_BYTES:
            start = at + HEADER_BYTES
            end = start + int.from_bytes(self._received[at + 1 : start], "big")
            kind = self._received[at]
            self._check_first(kind, end - start)
            if end > len(self._received):
                break
            payload = bytes(self._received[start:end])
            at = end
            if kind in RATES_HZ:
                commands += self._begin(kind)
                audio += payload
            else:
                self._obey(kind, payload)
        del self._received[:at]
        if self._audio is not None and audio:
            commands.append(Audio(self._audio.push(audio)))
        return [*commands, *self._end()]

    def _check_first(self, kind: int, n_bytes: int) -> None:
        if self._call_id is None and (kind, n_bytes) != (CALL_ID, _UUID_BYTES):
            raise MessageError(
                "not_audiosocket",
                f"The connection began with a frame of kind {kind:#04x} and {n_bytes} bytes.",
                "Let Asterisk connect here: AudioSocket(${UUID()},host:port).",
            )
        if kind in RATES_HZ and n_bytes % _SAMPLE_BYTES:
            raise MessageError(
                "bad_frame",
                f"A frame of {n_bytes} bytes holds half a sample.",
                "Send 16-bit audio.",
            )

    def _begin(self, kind: int) -> list[Command]:
        if self._audio is None:
            self._kind = kind
            self._audio = CallAudio(Encoding.PCM_S16LE, RATES_HZ[kind])
            return [self._wishes.joined_with({"call": self._call_id or ""}).begin(self._audio.fmt)]
        if kind != self._kind:
            raise MessageError(
                "rate_changed",
                f"The audio changed from {RATES_HZ[self._kind]} to {RATES_HZ[kind]} Hz.",
                "Keep the rate of a call.",
            )
        return []

    def _obey(self, kind: int, payload: bytes) -> None:
        if kind == CALL_ID and self._call_id is None:
            self._call_id = str(UUID(bytes=payload))
        elif kind in _ENDS:
            self._is_over = True
        # Digits are left out: they may be secret. What is not known is for a later version.

    def _end(self) -> list[Command]:
        if not self._is_over:
            return []
        self._received.clear()
        return self._stop()

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Hang up."""
        return Farewell([frame(HANGUP)], refusal.close_code, refusal.code)

    def done(self) -> Farewell:
        """Hang up, where Asterisk did not."""
        return Farewell([frame(HANGUP)], reason="done")

    def tick(self) -> list[str | bytes]:
        """Send a frame of silence, so that Asterisk does not give the call up."""
        n_samples = RATES_HZ[self._kind] * SILENCE_MS // 1000
        return [frame(self._kind, bytes(_SAMPLE_BYTES * n_samples))]
