"""FreeSWITCH's mod_audio_stream and mod_audio_fork: linear audio, and metadata as one text.

Neither module says how it samples, so the address does: ``?rate=16000&channels=2``. Both raise an
event with what is sent back to them; the captions come as JSON that either module passes on.
Sources: the modules' README files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from audiokv.server.telephony.call_audio import CallAudio
from audiokv.server.telephony.loose_json import MAX_TEXT_CHARS, Node, printable
from audiokv.server.telephony.raw_call import RawCallDialect
from audiokv.server.telephony.wishes import query_text
from audiokv.streaming.audio_format import Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Event, Opening

DEFAULT_RATE_HZ = 8_000
STEREO_LABELS = ("caller", "callee")


class FreeSwitchDialect(RawCallDialect):
    """One media bug of FreeSWITCH, from its connection to the end of it."""

    source = "freeswitch"

    def __init__(self) -> None:
        super().__init__()
        self._rate_hz = DEFAULT_RATE_HZ
        self._channels = 1
        self._is_interim = False

    def open(self, opening: Opening) -> list[Command]:
        """Read the address: ``rate``, ``channels``, ``interim``, ``language``, ``prompt``.

        Raises:
            MessageError: ``rate`` or ``channels`` is no number.
        """
        super().open(opening)
        address = Node({name: query_text(opening, name) or None for name in opening.query}, "query")
        self._rate_hz = address.whole("rate") or DEFAULT_RATE_HZ
        self._channels = address.whole("channels") or 1
        self._is_interim = address.text("interim") in ("1", "true")
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take metadata, before the audio, or audio.

        Raises:
            MessageError: The audio or the metadata cannot be taken.
        """
        if isinstance(message, str):
            return self._begin(_read_metadata(message)) if self._audio is None else []
        begin = self._begin(Node({}, "metadata")) if self._audio is None else []
        return [*begin, *self._take(message, "its format")]

    def _begin(self, metadata: Node) -> list[Command]:
        rate_hz = metadata.whole("sampleRate", "sample_rate", "rate") or self._rate_hz
        channels = metadata.whole("channels") or self._channels
        self._audio = CallAudio(Encoding.PCM_S16LE, rate_hz, channels)
        labels = STEREO_LABELS if self._audio.fmt.channels == len(STEREO_LABELS) else ()
        return [self._wishes.joined(metadata, metadata.metadata()).begin(self._audio.fmt, labels)]

    def say(self, event: Event) -> list[str | bytes]:
        """Send final captions back, and partial ones where ``interim=1`` asks for them."""
        if not isinstance(event, Caption) or not (event.is_final or self._is_interim):
            return []
        data = {
            "text": event.text,
            "is_final": event.is_final,
            "segment": event.segment,
            "start_ms": event.start_ms,
            "end_ms": event.end_ms,
            "language": event.language,
            "speaker": event.speaker,
        }
        return [json.dumps({"type": "transcription", "data": data}, ensure_ascii=False)]


def _read_metadata(text: str) -> Node:
    """Return metadata as an object; the modules allow any text, which is kept as it is."""
    try:
        return Node.parse(text, "metadata")
    except MessageError:
        return Node({"metadata": printable(text)[:MAX_TEXT_CHARS]}, "metadata")
