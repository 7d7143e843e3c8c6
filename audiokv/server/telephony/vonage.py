"""Vonage's WebSocket endpoint: one JSON text with the format and your headers, then linear audio.

Source: Vonage's guide to WebSockets in its Voice API.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from audiokv.server.telephony.call_audio import CallAudio, encoding_named
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.raw_call import RawCallDialect

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command

DEFAULT_RATE_HZ = 16_000
_RATE = re.compile(r";\s*rate=(\d{1,6})(?!\d)", re.ASCII)
_OWN_FIELDS = ("event", "content-type", "language", "prompt")


class VonageDialect(RawCallDialect):
    """One call that Vonage connects to this endpoint."""

    source = "vonage"

    def hear(self, message: str | bytes) -> list[Command]:
        """Take ``websocket:connected``, other events (left out), or audio.

        Raises:
            MessageError: Audio came first, or its format cannot be taken.
        """
        if isinstance(message, bytes):
            return self._take(message, "websocket:connected")
        fields = Node.parse(message)
        if fields.text("event") != "websocket:connected" or self._audio is not None:
            return []
        kind = fields.text("content-type")
        rate = _RATE.search(kind)
        self._audio = CallAudio(
            encoding_named(kind or "audio/l16"), int(rate[1]) if rate else DEFAULT_RATE_HZ
        )
        told = {n: v for n, v in fields.metadata().items() if n not in _OWN_FIELDS}
        return [self._wishes.joined(fields, told).begin(self._audio.fmt)]
