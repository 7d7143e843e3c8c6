from __future__ import annotations

import pytest
from aiosipua.sdp import SdpMessage, parse_sdp, serialize_sdp
from aiosipua.sdp_negotiate import SdpNegotiationError

from audiokv.server.telephony.codecs import G722, OPUS, PCMA, PayloadTypes
from audiokv.server.telephony.sdp_answer import answer_to


def offer(media: str, *attributes: str) -> SdpMessage:
    lines = ["v=0", "o=- 1 1 IN IP4 192.0.2.1", "s=-", "c=IN IP4 192.0.2.1", "t=0 0", media]
    return parse_sdp("\r\n".join([*lines, *(f"a={one}" for one in attributes), ""]))


def answered(media: str, *attributes: str, types: PayloadTypes | None = None) -> str:
    answer = answer_to(offer(media, *attributes), "192.0.2.9", 4_000, types or PayloadTypes())
    return serialize_sdp(answer)


def test_the_callers_order_decides() -> None:
    assert "m=audio 4000 RTP/AVP 9\r\n" in answered("m=audio 5000 RTP/AVP 18 9 8 0")
    assert "m=audio 4000 RTP/AVP 8\r\n" in answered("m=audio 5000 RTP/AVP 8 9")


def test_opus_is_answered_as_its_rfc_asks() -> None:
    types = PayloadTypes()
    text = answered("m=audio 5000 RTP/AVP 96 0", "rtpmap:96 opus/48000/2", types=types)
    assert "m=audio 4000 RTP/AVP 96\r\n" in text
    assert "a=rtpmap:96 opus/48000/2\r\n" in text
    assert "a=fmtp:96 maxplaybackrate=16000; stereo=0; useinbandfec=0\r\n" in text
    assert types.codec(96) is OPUS


def test_g722_has_the_clock_of_its_rfc() -> None:
    assert "a=rtpmap:9 G722/8000\r\n" in answered("m=audio 5000 RTP/AVP 9")


def test_every_codec_offered_is_learnt_whichever_is_chosen() -> None:
    types = PayloadTypes()
    answered(
        "m=audio 5000 RTP/AVP 0 97 98",
        "rtpmap:97 G722/8000",
        "rtpmap:98 PCMA/8000",
        types=types,
    )
    assert (types.codec(97), types.codec(98)) == (G722, PCMA)


def test_digits_keep_the_number_the_caller_gave_them() -> None:
    text = answered(
        "m=audio 5000 RTP/AVP 101 0 96", "rtpmap:101 opus/48000/2", "rtpmap:96 telephone-event/8000"
    )
    assert "m=audio 4000 RTP/AVP 101 96\r\n" in text
    assert "a=rtpmap:96 telephone-event/8000\r\n" in text
    assert "a=rtpmap:101 opus/48000/2\r\n" in text
    assert "telephone-event" not in answered("m=audio 5000 RTP/AVP 0")


@pytest.mark.parametrize(
    ("offered", "direction"),
    [
        ("sendrecv", "recvonly"),
        ("sendonly", "recvonly"),
        ("recvonly", "inactive"),
        ("inactive", "inactive"),
    ],
)
def test_nothing_is_ever_sent(offered: str, direction: str) -> None:
    text = answered("m=audio 5000 RTP/AVP 0", offered)
    found = [line for line in text.split("\r\n") if line in {"a=recvonly", "a=inactive"}]
    assert found == [f"a={direction}"]
    assert "a=sendrecv" not in text
    assert "a=sendonly" not in text


@pytest.mark.parametrize(
    "described",
    [
        ("m=audio 5000 RTP/AVP 18 3",),
        ("m=video 5000 RTP/AVP 0",),
        ("m=audio 5000 RTP/AVP 96", "rtpmap:96 opus/16000"),
        ("m=audio 5000 RTP/AVP 101", "rtpmap:101 telephone-event/8000"),
        ("m=audio 5000 RTP/AVP 96", "rtpmap:96 PCMU/8000/2"),
        ("m=audio 5000 RTP/AVP 96", "rtpmap:96 opus/48000/3"),
        ("m=audio 5000 RTP/SAVP 0", "crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AAAA"),
        ("m=audio 5000 UDP/TLS/RTP/SAVPF 0",),
        ("m=audio 0 RTP/AVP 0",),
    ],
)
def test_an_offer_without_a_known_codec_cannot_be_answered(described: tuple[str, ...]) -> None:
    with pytest.raises(SdpNegotiationError):
        answered(*described)


def test_one_channel_may_be_named_and_feedback_offered() -> None:
    assert "m=audio 4000 RTP/AVP 96" in answered("m=audio 5000 RTP/AVP 96", "rtpmap:96 PCMU/8000/1")
    assert "m=audio 4000 RTP/AVPF 0" in answered("m=audio 5000 RTP/AVPF 0")
