from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.codecs import G722, OPUS, PCMA, PCMU, Codec
from audiokv.server.telephony.media_timeline import MAX_GAP_MS
from audiokv.server.telephony.rtp_packet import RtpPacket
from audiokv.server.telephony.rtp_sender import Heard, RtpSender, in_order
from tests.server.telephony.rtp_packets import rtp


def heard(n: int, codec: Codec = PCMU, *, source: int = 1, late_ms: int = 0) -> Heard:
    packet = RtpPacket.parse(rtp(n, b"\xfc" * 160, source=source, late=8 * late_ms))
    return Heard(packet, codec, 20.0 * n)


def test_a_packet_lasts_as_its_codec_says() -> None:
    assert heard(0).duration_ms == heard(0, G722).duration_ms == heard(0, OPUS).duration_ms == 20


def test_whose_a_packet_is_shows_in_source_clock_and_time() -> None:
    sender = RtpSender(heard(0))
    assert sender.has_sent(heard(0))
    assert sender.has_sent(heard(3, PCMA))
    assert not sender.has_sent(heard(3, source=2))
    assert not sender.has_sent(heard(3, OPUS))


def test_a_clock_that_jumps_is_another_senders() -> None:
    sender = RtpSender(heard(0))
    sender.media_ms(heard(0, late_ms=5_000))
    assert sender.has_sent(heard(0, late_ms=4_000))
    assert not sender.has_sent(heard(0, late_ms=3_999))
    assert sender.has_sent(heard(0, late_ms=5_000 + MAX_GAP_MS))
    assert not sender.has_sent(heard(0, late_ms=5_001 + MAX_GAP_MS))
    assert not sender.has_sent(heard(0, late_ms=6_001), 1_000)


def test_media_time_counts_from_the_first_packet_over_the_wrap() -> None:
    sender = RtpSender(heard(2))
    assert [sender.media_ms(heard(n)) for n in (2, 3, 1, 9)] == [0, 20, -20, 140]


def test_packets_come_out_in_order_with_what_is_missing_before_them() -> None:
    sender = RtpSender(heard(0))
    out = [packet for n in (0, 2, 1, 4) for packet in sender.push(heard(n, PCMA))]
    out += sender.flush()
    assert [packet.codec for packet in out] == ["PCMA"] * 4
    assert [sender.missing_ms(packet, 160) for packet in out] == [0, 0, 0, 20]


def test_a_missing_packet_is_waited_for_by_the_senders_own_clock() -> None:
    sender = RtpSender(heard(0))
    sender.push(heard(0))
    assert [len(sender.push(heard(n))) for n in (2, 3, 4, 5, 6)] == [0, 0, 0, 0, 5]


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_packets_are_put_in_order_by_number_over_the_wrap(
    order: list[int], doubled: set[int]
) -> None:
    packets = [heard(n) for n in [*order, *doubled]]
    times = [one.packet.timestamp for one in in_order(packets)]
    assert times == [heard(n).packet.timestamp for n in range(12)]
