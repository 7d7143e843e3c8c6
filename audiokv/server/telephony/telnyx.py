"""Telnyx media streaming: Twilio's messages in snake_case, in no guaranteed order.

The payloads are RTP payloads without their headers; ``media.chunk`` tells the order. Source:
Telnyx' reference of media streaming over WebSockets.
"""

from __future__ import annotations

from audiokv.server.telephony.media_stream import MediaStreamDialect, StreamHabits

REORDER_MS = 100


class TelnyxDialect(MediaStreamDialect):
    """One stream of Telnyx."""

    source = "telnyx"

    def __init__(self) -> None:
        super().__init__(StreamHabits(encoding="PCMU", reorder_ms=REORDER_MS))
