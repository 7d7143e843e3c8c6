"""Sources are simulated: each yields (arrival in s, bytes), and time is only what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.rate_check import STANDARD_RATES_HZ, RateCheck

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.streaming.captions import Notice

    Arrivals = Iterable[tuple[float, int]]


@dataclass(frozen=True)
class Microphone:
    """A live source; each message is late by up to the jitter, none overtakes another."""

    fmt: AudioFormat
    message_ms: int = 20
    jitter_ms: float = 0
    seed: int = 0

    def live(self, seconds: float = 30, start_s: float = 100) -> list[tuple[float, int]]:
        n = int(seconds * 1000 / self.message_ms)
        late_ms = np.random.default_rng(self.seed).random(n) * self.jitter_ms
        times = start_s + ((np.arange(n) + 1) * self.message_ms + late_ms) / 1000
        ends = (np.arange(n) + 1) * self.message_ms * self.fmt.sample_rate_hz // 1000
        sizes = np.diff(ends, prepend=0) * self.fmt.frame_bytes
        return list(zip(np.maximum.accumulate(times).tolist(), sizes.tolist(), strict=True))


def at_rate(rate_hz: int) -> Microphone:
    return Microphone(AudioFormat(sample_rate_hz=rate_hz))


def fast(rng: np.random.Generator, fmt: AudioFormat, seconds: float) -> list[tuple[float, int]]:
    """A file sent in 100 ms messages, 10 s ahead at most, to a server of changing speed."""
    now, arrivals = 0.0, []
    message_bytes = fmt.bytes_per_second // 10
    while now < seconds:
        n_messages = int(rng.integers(1, 40))
        for _ in range(n_messages):
            now += 0.0005
            arrivals.append((now, message_bytes))
        now += n_messages * 0.1 / rng.uniform(1.2, 8)
    return arrivals


def notices(declared: AudioFormat, arrivals: Arrivals) -> list[tuple[float, Notice]]:
    check = RateCheck(declared)
    found = ((at_s, check.push(at_s, n_bytes)) for at_s, n_bytes in arrivals)
    return [(at_s, notice) for at_s, notice in found if notice is not None]


@pytest.mark.parametrize("true_hz", STANDARD_RATES_HZ)
@pytest.mark.parametrize("declared_hz", STANDARD_RATES_HZ)
def test_every_mix_up_of_standard_rates_is_found_once(true_hz: int, declared_hz: int) -> None:
    arrivals = Microphone(AudioFormat(sample_rate_hz=true_hz), jitter_ms=60).live()
    found = notices(AudioFormat(sample_rate_hz=declared_hz), arrivals)
    if true_hz == declared_hz:
        assert found == []
    else:
        [(at_s, notice)] = found
        assert at_s - 100 < 9
        assert notice.code == "rate_mismatch"
        assert f"{true_hz:,} samples" in notice.message
        assert f"{declared_hz:,} were declared" in notice.message
        assert f"sample_rate {true_hz} " in notice.remedy.replace(",", " ")


def test_a_whole_ratio_may_also_be_channels_or_encoding() -> None:
    stereo = Microphone(AudioFormat(sample_rate_hz=16_000, channels=2)).live()
    [(_, notice)] = notices(AudioFormat(sample_rate_hz=16_000), stereo)
    assert "32,000 samples" in notice.message
    assert "channels" in notice.remedy
    off = at_rate(44_100).live()
    [(_, notice)] = notices(AudioFormat(sample_rate_hz=48_000), off)
    assert notice.remedy == "Send sample_rate 44100 in start."


@pytest.mark.parametrize("message_ms", [10, 20, 100, 256])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_message_length_and_encoding_do_not_matter(message_ms: int, encoding: Encoding) -> None:
    arrivals = Microphone(AudioFormat(encoding, 8_000), message_ms).live()
    assert len(notices(AudioFormat(encoding, 16_000), arrivals)) == 1
    assert notices(AudioFormat(encoding, 8_000), arrivals) == []


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), jitter_ms=st.floats(0, 1_000))
def test_jitter_is_no_mismatch(seed: int, jitter_ms: float) -> None:
    fmt = AudioFormat()
    assert notices(fmt, Microphone(fmt, jitter_ms=jitter_ms, seed=seed).live(60)) == []


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_file_sent_fast_is_no_mismatch(seed: int) -> None:
    fmt = AudioFormat()
    assert notices(fmt, fast(np.random.default_rng(seed), fmt, 60)) == []


def test_a_file_sent_at_once_is_no_mismatch() -> None:
    fmt = AudioFormat()
    assert notices(fmt, [(k * 1e-4, 3_200) for k in range(300_000)]) == []


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_pauses_and_bursts_after_a_reconnect_are_no_mismatch(seed: int) -> None:
    fmt = AudioFormat()
    rng = np.random.default_rng(seed)
    arrivals: list[tuple[float, int]] = []
    now = 0.0
    for _ in range(12):
        burst_s = rng.uniform(0, 5)
        arrivals += [(now, fmt.bytes_per_second // 50)] * int(burst_s * 50)
        talk = Microphone(fmt, 20, 80, seed).live(rng.uniform(0.2, 8), now)
        arrivals += talk
        now = talk[-1][0] + rng.uniform(0.05, 5)
    assert notices(fmt, arrivals) == []


def test_sending_only_while_someone_speaks_is_no_mismatch() -> None:
    fmt = AudioFormat()
    half = [(at_s, n) for at_s, n in at_rate(16_000).live(120) if int(at_s / 0.9) % 2]
    assert notices(fmt, half) == []


def test_a_mismatch_is_found_after_a_pause_and_a_burst() -> None:
    true = at_rate(8_000)
    arrivals = [(0.0, 64_000), *true.live(3, 0), *true.live(15, 10)]
    [(at_s, _)] = notices(AudioFormat(), arrivals)
    assert 10 < at_s < 19


def test_it_is_said_only_once() -> None:
    arrivals = at_rate(8_000).live(300)
    assert len(notices(AudioFormat(), arrivals)) == 1


def test_two_windows_of_different_rates_decide_nothing() -> None:
    arrivals = [
        *at_rate(8_000).live(4.05, 0),
        *at_rate(24_000).live(5.9, 4.05),
    ]
    assert notices(AudioFormat(), arrivals) == []


def test_a_rate_that_is_no_standard_one_is_not_guessed() -> None:
    assert notices(AudioFormat(), at_rate(13_500).live()) == []


def test_a_nearly_right_declaration_is_left_alone() -> None:
    source = at_rate(48_000).live()
    assert notices(AudioFormat(sample_rate_hz=47_000), source) == []
