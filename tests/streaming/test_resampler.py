from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.resampler import StreamResampler

RATES_HZ = (8_000, 11_025, 12_345, 22_050, 24_000, 32_000, 44_100, 48_000)


def convert(samples: np.ndarray, from_hz: int, cuts: list[int] | None = None) -> np.ndarray:
    resampler = StreamResampler(from_hz)
    parts = np.split(samples, sorted(cuts or []))
    return np.concatenate([*(resampler.push(part) for part in parts), resampler.flush()])


@pytest.mark.parametrize("from_hz", RATES_HZ)
@pytest.mark.parametrize("n_in", [0, 1, 7, 441, 8_001])
def test_total_length_is_the_rounded_ratio(from_hz: int, n_in: int) -> None:
    out = convert(np.ones(n_in, np.float32), from_hz)
    assert out.dtype == np.float32
    assert len(out) == int(n_in * 16_000 / from_hz + 0.5)


@pytest.mark.parametrize("from_hz", RATES_HZ)
@pytest.mark.parametrize("at_s", [0.01, 0.5, 0.995])
def test_an_impulse_stays_where_it_was(from_hz: int, at_s: float) -> None:
    impulse = np.zeros(from_hz, np.float32)
    impulse[round(from_hz * at_s)] = 1
    position_s = np.argmax(np.abs(convert(impulse, from_hz))) / 16_000
    assert abs(position_s - at_s) < 0.0002


@pytest.mark.parametrize("from_hz", RATES_HZ)
def test_a_tone_keeps_pitch_level_and_phase(from_hz: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(from_hz) / from_hz).astype(np.float32)
    expected = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    error = convert(tone, from_hz) - expected
    assert np.abs(error[200:-200]).max() < 0.01


def test_what_16_khz_cannot_hold_is_filtered_out() -> None:
    tone = np.sin(2 * np.pi * 10_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(convert(tone, 48_000)[200:-200]).max() < 0.01


@settings(max_examples=60, deadline=None)
@given(
    from_hz=st.sampled_from(RATES_HZ),
    cuts=st.lists(st.integers(0, 3_000), max_size=40),
    seed=st.integers(0, 9),
)
def test_any_chunking_gives_the_same_samples(from_hz: int, cuts: list[int], seed: int) -> None:
    samples = np.random.default_rng(seed).standard_normal(3_000).astype(np.float32)
    np.testing.assert_array_equal(convert(samples, from_hz, cuts), convert(samples, from_hz))


def test_single_samples_give_the_same_as_one_push() -> None:
    samples = np.random.default_rng(0).standard_normal(900).astype(np.float32)
    singly = convert(samples, 44_100, list(range(1, 900)))
    np.testing.assert_array_equal(singly, convert(samples, 44_100))


@pytest.mark.parametrize(("from_hz", "limit_ms"), [(8_000, 2.6), (44_100, 1.3), (48_000, 1.3)])
def test_no_more_than_the_stated_audio_is_held_back(from_hz: int, limit_ms: float) -> None:
    resampler = StreamResampler(from_hz)
    n_out = 0
    for n_frames in range(1, 101):
        n_out += len(resampler.push(np.zeros(from_hz // 100, np.float32)))
        assert n_frames * 10 - n_out / 16 <= limit_ms


def test_the_delay_does_not_grow_over_minutes() -> None:
    resampler = StreamResampler(44_100)
    n_out = sum(len(resampler.push(np.zeros(441_000, np.float32))) for _ in range(30))
    assert 300_000 - n_out / 16 <= 1.3


def test_equal_rates_pass_through() -> None:
    samples = np.random.default_rng(0).standard_normal(321).astype(np.float32)
    resampler = StreamResampler(16_000)
    np.testing.assert_array_equal(resampler.push(samples), samples)
    assert len(resampler.flush()) == 0


def test_another_output_rate() -> None:
    resampler = StreamResampler(16_000, 8_000)
    n_out = len(resampler.push(np.zeros(1_600, np.float32))) + len(resampler.flush())
    assert n_out == 800


def test_after_the_end_nothing_more_comes_or_goes() -> None:
    resampler = StreamResampler(8_000)
    resampler.push(np.ones(80, np.float32))
    assert len(resampler.flush()) > 0
    assert len(resampler.flush()) == 0
    with pytest.raises(ValueError, match="flushed"):
        resampler.push(np.ones(80, np.float32))
