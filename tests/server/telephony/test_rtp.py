from __future__ import annotations

import random
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Command, Finalize, Opening, Stop
from audiokv.server.telephony.codecs import PayloadTypes
from audiokv.server.telephony.rtp import RtpDialect
from audiokv.server.telephony.rtp_packet import Datagram
from audiokv.server.telephony.wishes import Wishes
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.g711 import decode_alaw, decode_mulaw
from benchmarks.telephone_line import ENCODINGS, OPUS_TYPE
from tests.server.telephony.fuzzing import FUZZED, audio_in, begin_in, gaps_in, survives
from tests.server.telephony.rtp_packets import rtp, wide

PACKET_BYTES = 640  # 20 ms of what is handed on


def run_of(*numbers: int) -> bytes:
    """Return the audio of packets that follow each other without a gap."""
    return wide(np.concatenate([decode_mulaw(bytes([n % 256]) * 160) for n in numbers]))


def answered(types: PayloadTypes | None = None) -> RtpDialect:
    dialect = RtpDialect(Wishes("de", "", {"from": "sip:a@b"}), types)
    begin = begin_in(dialect.open(Opening()))
    assert begin.fmt == AudioFormat()
    assert (begin.language, begin.metadata) == ("de", {"from": "sip:a@b"})
    return dialect


def told(dialect: RtpDialect, *datagrams: bytes) -> list[Command]:
    """Return the commands for datagrams and for the end of the call behind them."""
    said = [command for datagram in (*datagrams, b"") for command in dialect.hear(datagram)]
    assert said.pop() == Stop()
    return said


def test_packets_become_linear_audio_over_wrapping_counters() -> None:
    heard = told(answered(), *(rtp(n) for n in range(12)))
    assert audio_in(heard) == run_of(*range(12))
    assert gaps_in(heard) == []


def test_audio_is_handed_on_as_it_comes() -> None:
    dialect = answered()
    for n in range(3):
        (audio,) = (dialect.hear(rtp(n)),)
        assert len(audio_in(audio)) >= PACKET_BYTES - 2 * 40  # the resampler's 2.5 ms


def test_overtaken_packets_are_put_in_order() -> None:
    heard = told(answered(), *(rtp(n) for n in (0, 2, 1, 4, 5, 3, 6)))
    assert audio_in(heard) == run_of(*range(7))
    assert gaps_in(heard) == []


def test_lost_packets_are_a_gap_once_they_were_waited_for() -> None:
    dialect = answered()
    waited = [dialect.hear(rtp(n)) for n in (0, 3, 4, 5, 6)]
    assert not any(waited[1:])
    assert gaps_in(dialect.hear(rtp(7))) == [40]
    heard = told(answered(), *(rtp(n) for n in (0, *range(3, 9))))
    assert audio_in(heard) == run_of(0) + run_of(*range(3, 9))


def test_a_pause_that_was_not_sent_is_a_gap_at_once() -> None:
    dialect = answered()
    dialect.hear(rtp(0))
    assert gaps_in(dialect.hear(rtp(1, late=8_000))) == [1_000]


def test_the_codec_may_change_within_a_call() -> None:
    heard = told(answered(), rtp(0), rtp(1, b"\x55" * 160, kind=8))
    assert audio_in(heard) == run_of(0) + wide(decode_alaw(b"\x55" * 160))
    assert gaps_in(heard) == []


@pytest.mark.parametrize("name", ["g722", "opus"])
def test_wide_codecs_are_heard_in_true_time(name: str) -> None:
    encoding = ENCODINGS[name]
    types = PayloadTypes()
    types.learn(OPUS_TYPE, "opus", 48_000)
    noise = np.random.default_rng(3).standard_normal(320 * 12).astype(np.float32) * 0.1
    packets = [
        rtp(n, payload, kind=encoding.payload_type, late=n * (encoding.clock_hz // 50 - 160))
        for n, payload in enumerate(encoding.encode(noise))
    ]
    heard = told(answered(types), *packets[:5], *packets[7:])
    assert gaps_in(heard) == [40]
    assert len(audio_in(heard)) == 10 * PACKET_BYTES


def test_what_was_not_agreed_on_is_left_out() -> None:
    dialect = answered()
    assert dialect.hear(rtp(0, b"\xfc" * 60, kind=OPUS_TYPE)) == []
    assert dialect.n_ignored == 1


def test_a_broken_payload_is_as_good_as_lost() -> None:
    types = PayloadTypes()
    types.learn(OPUS_TYPE, "opus", 48_000)
    heard = told(answered(types), rtp(0, b"\xff\x41\xff", kind=OPUS_TYPE))
    assert gaps_in(heard) == [20]
    assert audio_in(heard) == b""


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
    heard = dialect.hear(rtp(0))
    assert dialect.hear(datagram) == []
    assert dialect.n_ignored == 1
    assert audio_in(heard + told(dialect, rtp(1))) == run_of(0, 1)


def test_the_end_of_the_call_gives_out_what_still_waited() -> None:
    assert answered().hear(b"") == [Stop()]
    heard = told(answered(), rtp(0), rtp(2))
    assert gaps_in(heard) == [20]
    assert audio_in(heard) == run_of(0) + run_of(2)


def test_a_silence_on_the_line_gives_out_the_rest_and_ends_the_caption_once() -> None:
    dialect = answered()
    heard = dialect.hear(rtp(0)) + dialect.hear(rtp(2))
    missed = dialect.miss(2_000)
    assert missed.pop() == Finalize()
    assert audio_in(heard + missed) == run_of(0) + run_of(2)
    assert dialect.miss(1_000) == []
    dialect.hear(rtp(3))
    assert dialect.miss(2_000)[-1] == Finalize()


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), n_packets=st.integers(2, 300))
def test_every_sample_is_in_its_place_over_loss_jitter_and_duplicates(
    seed: int, n_packets: int
) -> None:
    assert_true_audio(seed, n_packets)


def test_every_sample_is_in_its_place_over_ten_minutes() -> None:
    assert_true_audio(11, 30_000)


def assert_true_audio(seed: int, n_packets: int) -> None:
    """5 % loss, 60 ms jitter, 2 % duplicates: zeros stand for what was lost, all else is there."""
    rng = random.Random(seed)  # noqa: S311  no secret
    noise = np.random.default_rng(seed).integers(0, 256, (n_packets, 160), np.uint8)
    arrivals = [(0.0, 0)]
    for n in range(1, n_packets):
        if rng.random() >= 0.05:
            copies = 2 if rng.random() < 0.02 else 1
            arrivals += [(20 * n + rng.uniform(0, 60), n) for _ in range(copies)]
    datagrams = (Datagram(rtp(n, noise[n].tobytes()), at_ms) for at_ms, n in sorted(arrivals))
    said = told(answered(), *datagrams)
    heard = b"".join(audio_in([one]) + bytes(32 * sum(gaps_in([one]))) for one in said)
    came = {n for _, n in arrivals}
    expected = []
    for is_there, group in groupby(range(max(came) + 1), lambda n: n in came):
        run = list(group)
        narrow = decode_mulaw(noise[run].tobytes())
        expected.append(wide(narrow) if is_there else bytes(PACKET_BYTES * len(run)))
    assert heard == b"".join(expected)


@FUZZED
@given(
    st.lists(
        st.binary(min_size=1, max_size=40)
        | st.builds(
            lambda n, kind, data, source, late, at_ms: Datagram(
                rtp(n, data, kind=kind, source=source, late=late), at_ms
            ),
            st.integers(0, 70_000),
            st.sampled_from([0, 8, 9, 13, 101, OPUS_TYPE]),
            st.binary(max_size=9) | st.just(b"\xff" * 160),
            st.integers(1, 3),
            st.sampled_from([0, 10_000, 2**31]),
            st.floats(0, 1e7),
        ),
        max_size=60,
    )
)
def test_nothing_but_its_own_error(heard: list[bytes]) -> None:
    types = PayloadTypes()
    types.learn(OPUS_TYPE, "opus", 48_000)
    survives(RtpDialect(Wishes(), types), heard)
