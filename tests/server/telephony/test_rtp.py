from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Command, Finalize, Gap, Opening, Stop
from audiokv.server.telephony.rtp import RtpDialect, RtpPacket
from audiokv.server.telephony.wishes import Wishes
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from audiokv.streaming.g711 import decode_alaw, decode_mulaw
from tests.server.telephony.fuzzing import FUZZED, audio_in, begin_in, gaps_in, survives

SOURCE = 0xDEADBEEF
VALUES = decode_mulaw(bytes(range(100))).tolist()


def rtp(
    n: int, payload: bytes | None = None, *, kind: int = 0, source: int = SOURCE, late: int = 0
) -> bytes:
    """Return the n-th packet of 20 ms; number and time wrap after a few.

    Args:
        n: Number from 0.
        payload: By default 160 codes that tell n.
        kind: Payload type.
        source: Identifier of the sender.
        late: Ticks by which its time is later.
    """
    sequence = (65_530 + n) % 2**16
    timestamp = (2**32 - 800 + 160 * n + late) % 2**32
    header = bytes([0x80, kind]) + sequence.to_bytes(2, "big") + timestamp.to_bytes(4, "big")
    audio = bytes([n % 256]) * 160 if payload is None else payload
    return header + source.to_bytes(4, "big") + audio


def linear(*numbers: int) -> bytes:
    return b"".join(decode_mulaw(bytes([n % 256]) * 160).tobytes() for n in numbers)


def answered() -> RtpDialect:
    dialect = RtpDialect(Wishes("de", "", {"from": "sip:a@b"}))
    begin = begin_in(dialect.open(Opening()))
    assert begin.fmt == AudioFormat(sample_rate_hz=8_000)
    assert (begin.language, begin.metadata) == ("de", {"from": "sip:a@b"})
    return dialect


def test_packets_become_linear_audio_over_wrapping_counters() -> None:
    dialect = answered()
    heard = [c for n in range(12) for c in dialect.hear(rtp(n))]
    assert audio_in(heard) == linear(*range(12))
    assert gaps_in(heard) == []


def test_overtaken_packets_are_put_in_order() -> None:
    dialect = answered()
    heard = [c for n in (0, 2, 1, 4, 5, 3, 6) for c in dialect.hear(rtp(n))]
    assert audio_in(heard) == linear(*range(7))
    assert gaps_in(heard) == []


def test_lost_packets_are_a_gap_once_they_were_waited_for() -> None:
    dialect = answered()
    heard = [c for n in (0, *range(3, 9)) for c in dialect.hear(rtp(n))]
    assert heard[1] == Gap(40)
    assert audio_in(heard) == linear(0, *range(3, 9))


def test_a_pause_that_was_not_sent_is_a_gap_at_once() -> None:
    dialect = answered()
    dialect.hear(rtp(0))
    assert dialect.hear(rtp(1, late=8_000))[0] == Gap(1_000)


def test_the_codec_may_change_within_a_call() -> None:
    dialect = answered()
    heard = dialect.hear(rtp(0)) + dialect.hear(rtp(1, b"\x55" * 160, kind=8))
    assert audio_in(heard) == linear(0) + decode_alaw(b"\x55" * 160).tobytes()


def test_another_sender_is_followed_with_its_own_clock() -> None:
    dialect = answered()
    for n in (0, 2):
        dialect.hear(rtp(n))
    heard = dialect.hear(rtp(7, source=1, late=12_345))
    assert audio_in(heard) == linear(2, 7)
    assert gaps_in(heard) == [20]


@pytest.mark.parametrize(
    "datagram",
    [
        b"\x80",
        rtp(1)[:12],
        rtp(1, kind=101),
        rtp(1, kind=13),
        b"\x81\xc8" + bytes(26),
        b"\x00" * 172,
        b"\x8f" + rtp(1)[1:20],
        b"\xa0" + rtp(1, b"\xff" * 20)[1:],
        b"OPTIONS sip:x SIP/2.0\r\n",
    ],
)
def test_what_is_no_audio_is_left_out(datagram: bytes) -> None:
    dialect = answered()
    dialect.hear(rtp(0))
    assert dialect.hear(datagram) == []
    assert dialect.n_ignored == 1
    assert dialect.hear(rtp(1)) == [Audio(linear(1))]


def test_extension_contributors_and_padding_are_no_audio() -> None:
    head, payload = rtp(3)[2:12], b"ab"
    extension = b"\xbe\xde\x00\x01" + bytes(4)
    datagram = bytes([0x80 | 0x20 | 0x10 | 2, 0x80]) + head + bytes(8) + extension + payload
    packet = RtpPacket.parse(datagram + b"\x00\x00\x03")
    assert packet.payload == payload
    assert (packet.payload_type, packet.sequence, packet.source) == (0, 65_533, SOURCE)


def test_the_end_of_the_call_gives_out_what_still_waited() -> None:
    assert answered().hear(b"") == [Stop()]
    dialect = answered()
    dialect.hear(rtp(0))
    dialect.hear(rtp(2))
    assert dialect.hear(b"") == [Gap(20), Audio(linear(2)), Stop()]


def test_a_silence_on_the_line_gives_out_the_rest_and_ends_the_caption_once() -> None:
    dialect = answered()
    dialect.hear(rtp(0))
    dialect.hear(rtp(2))
    assert dialect.miss(2_000) == [Gap(20), Audio(linear(2)), Finalize()]
    assert dialect.miss(1_000) == []
    dialect.hear(rtp(3))
    assert dialect.miss(2_000) == [Finalize()]


@given(seed=st.integers(0, 2**16), n_packets=st.integers(2, 300))
def test_time_stays_true_over_loss_jitter_and_duplicates(seed: int, n_packets: int) -> None:
    assert_true_time(seed, n_packets)


def test_time_stays_true_over_ten_minutes() -> None:
    assert_true_time(11, 30_000)


def assert_true_time(seed: int, n_packets: int) -> None:
    """5 % loss, 60 ms jitter, 2 % duplicates: each packet must lie where it was spoken."""
    rng = random.Random(seed)  # noqa: S311  no secret
    arrivals = [(0.0, 0)]
    for n in range(1, n_packets):
        if rng.random() >= 0.05:
            copies = 2 if rng.random() < 0.02 else 1
            arrivals += [(20 * n + rng.uniform(0, 60), n) for _ in range(copies)]
    dialect = answered()
    heard: list[Command] = []
    for _, n in sorted(arrivals):
        digits = bytes([n % 100, n // 100 % 100, n // 10_000])  # no two codes below 127 are alike
        heard += dialect.hear(rtp(n, digits + bytes(157)))
    heard += dialect.miss(2_000)
    at_ms, n_heard = 0, 0
    for command in heard:
        if isinstance(command, Gap):
            at_ms += command.duration_ms
        elif isinstance(command, Audio):
            one, hundred, many = (VALUES.index(v) for v in np.frombuffer(command.data[:6], "<i2"))
            assert at_ms == 20 * (one + 100 * hundred + 10_000 * many)
            at_ms += 20
            n_heard += 1
    assert n_heard == len({n for _, n in arrivals})


@FUZZED
@given(
    st.lists(
        st.binary(min_size=1, max_size=40)
        | st.builds(
            lambda n, kind, data: rtp(n, data, kind=kind),
            st.integers(0, 70_000),
            st.sampled_from([0, 8, 13, 101]),
            st.binary(max_size=9),
        ),
        max_size=30,
    )
)
def test_nothing_but_its_own_error(heard: list[bytes]) -> None:
    survives(RtpDialect(Wishes()), heard)


@given(st.binary(max_size=60))
def test_any_datagram_is_a_packet_or_an_error(datagram: bytes) -> None:
    try:
        packet = RtpPacket.parse(datagram)
    except MessageError:
        return
    assert len(packet.payload) <= len(datagram) - 12
