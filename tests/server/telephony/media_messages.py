"""Messages of Twilio's family, as a provider writes them."""

from __future__ import annotations

import base64
import json
from typing import Any

WORDS = {
    "event",
    "start",
    "media",
    "stop",
    "chunk",
    "timestamp",
    "payload",
    "track",
    "tracks",
    "inbound",
    "outbound",
    "mediaFormat",
    "media_format",
    "encoding",
    "audio/x-mulaw",
    "audio/x-l16",
    "sampleRate",
    "customParameters",
    "language",
}
MULAW = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}


def start(**changes: Any) -> str:
    """Return a start in Twilio's spelling, with changed fields."""
    fields = {
        "accountSid": "AC1",
        "streamSid": "MZ1",
        "callSid": "CA1",
        "tracks": ["inbound"],
        "mediaFormat": MULAW,
        "customParameters": {},
    }
    values = {"event": "start", "sequenceNumber": "1", "streamSid": "MZ1"}
    return json.dumps({**values, "start": {**fields, **changes}})


def media(n: int, audio: bytes | None = None, track: str = "inbound", ms: int = 20) -> str:
    """Return the n-th chunk (from 0) of a track, by default 20 ms of mu-law that tell n."""
    payload = bytes([n % 256]) * 160 if audio is None else audio
    fields = {
        "track": track,
        "chunk": str(n + 1),
        "timestamp": str(n * ms),
        "payload": base64.b64encode(payload).decode(),
    }
    return json.dumps({"event": "media", "sequenceNumber": str(n + 2), "media": fields})
