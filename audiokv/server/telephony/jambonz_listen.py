"""The ``listen`` verb of jambonz: the call's attributes as one JSON text, then linear audio.

Source: the verb's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.telephony.call_audio import CallAudio
from audiokv.server.telephony.loose_json import Node
from audiokv.server.telephony.raw_call import RawCallDialect
from audiokv.streaming.audio_format import Encoding

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command

DEFAULT_RATE_HZ = 8_000
STEREO_LABELS = ("caller", "callee")
_TOLD = {
    "callSid": "call",
    "callId": "sip_call",
    "from": "from",
    "to": "to",
    "direction": "direction",
    "callerName": "caller",
}


class JambonzListenDialect(RawCallDialect):
    """One call that jambonz lets us listen to."""

    source = "jambonz"

    def hear(self, message: str | bytes) -> list[Command]:
        """Take the call's attributes, digits pressed (left out), or audio.

        Raises:
            MessageError: Audio came first, or the attributes cannot be taken.
        """
        if isinstance(message, str):
            return self._begin(Node.parse(message)) if self._audio is None else []
        return self._take(message, "the call's attributes")

    def _begin(self, call: Node) -> list[Command]:
        is_stereo = call.text("mixType") == "stereo"
        rate_hz = call.whole("sampleRate") or DEFAULT_RATE_HZ
        self._audio = CallAudio(Encoding.PCM_S16LE, rate_hz, 2 if is_stereo else 1)
        told = {name: call.text(field) for field, name in _TOLD.items()}
        wishes = self._wishes.joined(call.node("metadata"), told)
        return [wishes.begin(self._audio.fmt, STEREO_LABELS if is_stereo else ())]
