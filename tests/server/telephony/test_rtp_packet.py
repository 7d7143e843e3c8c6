from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.rtp_packet import Datagram, RtpPacket
from audiokv.streaming.errors import MessageError
from tests.server.telephony.rtp_packets import SOURCE, rtp


def test_the_header_is_read() -> None:
    packet = RtpPacket.parse(rtp(3, b"ab", kind=8))
    assert (packet.payload_type, packet.sequence, packet.source) == (8, 65_533, SOURCE)
    assert packet.timestamp == (2**32 - 800 + 480) % 2**32
    assert packet.payload == b"ab"


def test_extension_contributors_and_padding_are_no_audio() -> None:
    head, payload = rtp(3)[2:12], b"ab"
    extension = b"\xbe\xde\x00\x01" + bytes(4)
    datagram = bytes([0x80 | 0x20 | 0x10 | 2, 0x80]) + head + bytes(8) + extension + payload
    packet = RtpPacket.parse(datagram + b"\x00\x00\x03")
    assert packet.payload == payload
    assert (packet.payload_type, packet.sequence, packet.source) == (0, 65_533, SOURCE)


@pytest.mark.parametrize(
    "datagram", [b"", b"\x80", b"\x00" * 172, b"\x8f" + rtp(1)[1:20], b"\xa0" + rtp(1, b"\xff")[1:]]
)
def test_other_datagrams_are_none(datagram: bytes) -> None:
    with pytest.raises(MessageError) as caught:
        RtpPacket.parse(datagram)
    assert caught.value.code == "no_rtp"


@given(st.binary(max_size=60))
def test_any_datagram_is_a_packet_or_an_error(datagram: bytes) -> None:
    try:
        packet = RtpPacket.parse(datagram)
    except MessageError:
        return
    assert len(packet.payload) <= len(datagram) - 12


def test_a_datagram_is_its_bytes_and_a_time() -> None:
    datagram = Datagram(b"abc", 12.5)
    assert datagram == b"abc"
    assert datagram.arrived_ms == 12.5
