"""Sinch's voice stream: ``connect`` answered with ``answer``, then linear audio.

Without a heartbeat, Sinch ends a stream to which no audio is sent after a minute. Source: Sinch's
reference of the stream protocol, version 1.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Farewell, Reply
from audiokv.server.telephony.call_audio import CallAudio, encoding_named
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.raw_call import RawCallDialect

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command
    from audiokv.server.refusals import RefusalError

DEFAULT_RATE_HZ = 16_000
_ANSWER = json.dumps({"command": "answer"})
_REJECT = json.dumps({"command": "reject"})
_BUSY = json.dumps({"command": "busy"})
_HEARTBEAT = json.dumps({"command": "heartbeat"})


class SinchDialect(RawCallDialect):
    """One call that Sinch connects to this server."""

    source = "sinch"

    tick_every_s: float | None = 20.0

    def hear(self, message: str | bytes) -> list[Command]:
        """Take ``connect``, other commands (left out), or audio.

        Raises:
            MessageError: Audio came first, or its format cannot be taken.
        """
        if isinstance(message, bytes):
            return self._take(message, "connect")
        fields = Node.parse(message)
        if fields.text("command") != "connect" or self._audio is not None:
            return []
        encoding = encoding_named(fields.text("codec") or "pcm")
        self._audio = CallAudio(encoding, fields.whole("sampleRate") or DEFAULT_RATE_HZ)
        headers = fields.node("callHeaders")
        told = {**headers.metadata(), "call": fields.text("callId")}
        return [self._wishes.joined(headers, told).begin(self._audio.fmt), Reply(_ANSWER)]

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Say busy where trying again may help, else reject; a call that runs just ends."""
        if self._audio is not None and refusal.retry_after_s is None:
            return Farewell([], refusal.close_code, refusal.code)
        word = _REJECT if refusal.retry_after_s is None else _BUSY
        return Farewell([word], refusal.close_code, refusal.code)

    def tick(self) -> list[str | bytes]:
        """Tell Sinch that the stream is wanted although nothing is played."""
        return [_HEARTBEAT] if self._audio is not None else []
