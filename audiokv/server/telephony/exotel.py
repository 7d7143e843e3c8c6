"""Exotel's Stream and Voicebot applets: Twilio's messages in snake_case with linear audio.

Chunks are of about 100 ms. Source: Exotel's reference of the WebSocket protocol.
"""

from __future__ import annotations

from audiokv.server.telephony.media_stream import MediaStreamDialect, StreamHabits


class ExotelDialect(MediaStreamDialect):
    """One stream of Exotel."""

    source = "exotel"

    def __init__(self) -> None:
        super().__init__(StreamHabits(encoding="audio/x-raw"))
