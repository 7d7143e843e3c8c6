from __future__ import annotations

import numpy as np
import pytest

from audiokv.server.telephony.rtp_packet import RtpPacket
from audiokv.streaming.g711 import decode_alaw, decode_mulaw
from benchmarks.telephone_line import (
    BAD_NETWORK,
    ENCODINGS,
    OPUS_TYPE,
    Leg,
    Network,
    Sent,
    without,
)

TONE = (0.3 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)).astype(np.float32)


def parsed(leg: Leg, from_ms: float = 0.0) -> list[RtpPacket]:
    return [RtpPacket.parse(one.data) for one in leg.send(TONE, from_ms)]


@pytest.mark.parametrize(
    ("name", "payload_type", "n_ticks"),
    [("pcmu", 0, 160), ("pcma", 8, 160), ("g722", 9, 160), ("opus", OPUS_TYPE, 960)],
)
def test_packets_of_20_ms_count_as_their_codec_asks(
    name: str, payload_type: int, n_ticks: int
) -> None:
    packets = parsed(Leg(name, source=7, sequence=65_534, timestamp=2**32 - n_ticks))
    assert len(packets) == 50
    assert {p.payload_type for p in packets} == {payload_type}
    assert {p.source for p in packets} == {7}
    assert [p.sequence for p in packets[:4]] == [65_534, 65_535, 0, 1]
    assert [p.timestamp for p in packets[:3]] == [2**32 - n_ticks, 0, n_ticks]


@pytest.mark.parametrize(("name", "decode"), [("pcmu", decode_mulaw), ("pcma", decode_alaw)])
def test_g711_carries_what_was_said(name: str, decode: object) -> None:
    assert callable(decode)
    heard = np.concatenate([decode(payload) for payload in ENCODINGS[name].encode(TONE)])
    assert np.abs(heard[100:-100] / 32_767 - TONE[::2][100:-100]).max() < 0.02


def test_a_packet_leaves_when_its_last_sample_was_spoken() -> None:
    assert [one.at_ms for one in Leg().send(TONE[:660], 1_000.0)] == [1_020.0, 1_040.0, 1_060.0]
    later = parsed(Leg(sequence=10, timestamp=0), 1_000.0)[0]
    assert (later.sequence, later.timestamp) == (60, 8_000)


def test_a_good_network_only_delays() -> None:
    sent = Leg().send(TONE)
    came = Network(delay_ms=30.0).carry(sent, np.random.default_rng(1))
    assert came == [Sent(one.at_ms + 30.0, one.data) for one in sent]


def test_a_bad_network_loses_doubles_and_lets_packets_overtake() -> None:
    sent = Leg().send(np.tile(TONE, 40))
    came = BAD_NETWORK.carry(sent, np.random.default_rng(1))
    kept = {one.data for one in came}
    assert 0.03 < 1 - len(kept) / len(sent) < 0.07
    assert 0.01 < len(came) / len(kept) - 1 < 0.03
    left_ms = {one.data: one.at_ms for one in sent}
    delays = [one.at_ms - left_ms[one.data] for one in came]
    assert 30 <= min(delays) < 31
    assert 89 < max(delays) <= 90
    order = [left_ms[one.data] for one in came]
    assert order != sorted(order)
    assert [one.at_ms for one in came] == sorted(one.at_ms for one in came)


def test_a_dead_line_sends_nothing() -> None:
    sent = Leg().send(TONE)
    left = [one.at_ms for one in without(sent, 100, 200)]
    assert left == [20, 40, 60, 80, *range(200, 1_001, 20)]
