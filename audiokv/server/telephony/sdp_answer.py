"""The answer to a session description that offers audio: one codec, and nothing sent (RFC 3264)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosipua.sdp import negotiate_sdp
from aiosipua.sdp_negotiate import SdpNegotiationError

from audiokv.server.telephony.codecs import OPUS

if TYPE_CHECKING:
    from aiosipua.sdp import MediaDescription, SdpMessage

    from audiokv.server.telephony.codecs import PayloadTypes

_DIRECTIONS = ("sendrecv", "sendonly", "recvonly", "inactive")
_OPUS_RTPMAP = "opus/48000/2"  # RFC 7587, section 4.1: always two channels, whatever is sent
# What is heard is 16 kHz mono; redundancy is not asked for, as nothing lost is made up for.
_OPUS_WISHES = "maxplaybackrate=16000; stereo=0; useinbandfec=0"
_PLAIN = ("RTP/AVP", "RTP/AVPF")  # what is encrypted cannot be heard
_MAX_CHANNELS = {"opus": 2}  # of any other, one
_DIGITS = "telephone-event"


def answer_to(offer: SdpMessage, host: str, port: int, payload_types: PayloadTypes) -> SdpMessage:
    """Return an answer that takes the codec the caller likes best of those known here.

    Args:
        offer: The offer.
        host: Address at which the audio is expected.
        port: Its port.
        payload_types: Learns what the offer's payload types stand for.

    Raises:
        SdpNegotiationError: The offer has no audio in a codec known here, or it is encrypted
            or refused by the caller (port 0).
    """
    offered = offer.audio
    if offered is not None and (offered.proto not in _PLAIN or not offered.port):
        raise SdpNegotiationError
    codecs = offered.codecs if offered is not None else []
    known = [
        codec.payload_type
        for codec in codecs
        if (codec.channels or 1) <= _MAX_CHANNELS.get(codec.encoding_name.lower(), 1)
        and payload_types.learn(codec.payload_type, codec.encoding_name, codec.clock_rate)
    ]
    digits = (c.payload_type for c in codecs if c.encoding_name.lower() == _DIGITS)
    answer, chosen = negotiate_sdp(
        offer, host, port, supported_codecs=known, dtmf_payload_type=next(digits, 0)
    )
    if answer.audio is not None and offered is not None:
        _listen_only(answer.audio, offered)
        if payload_types.codec(chosen) is OPUS:
            _wish_for_opus(answer.audio, chosen)
    return answer


def _listen_only(audio: MediaDescription, offered: MediaDescription) -> None:
    for direction in _DIRECTIONS:
        audio.attributes.pop(direction, None)
    is_mute = offered.direction in ("recvonly", "inactive")
    audio.attributes["inactive" if is_mute else "recvonly"] = []


def _wish_for_opus(audio: MediaDescription, payload_type: int) -> None:
    maps = audio.attributes.get("rtpmap", [])
    prefix = f"{payload_type} "
    audio.attributes["rtpmap"] = [
        f"{prefix}{_OPUS_RTPMAP}" if line.startswith(prefix) else line for line in maps
    ]
    wishes = [f"{prefix}{_OPUS_WISHES}", *audio.attributes.get("fmtp", [])]
    audio.attributes["fmtp"] = wishes
