from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from audiokv.streaming.policy.smoothing import MedianTrendSmoother, NoSmoother, SpectralSmoother

if TYPE_CHECKING:
    from audiokv.streaming.policy.protocol import Smoother

SMOOTHERS: tuple[Smoother, ...] = (
    NoSmoother(),
    MedianTrendSmoother(),
    MedianTrendSmoother(15, 0.9),
    SpectralSmoother(),
    SpectralSmoother(counts_dc=True),
)
VALUES = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1, width=16))


@pytest.mark.parametrize("smoother", SMOOTHERS)
@given(values=VALUES)
def test_rows_are_smoothed_one_by_one(smoother: Smoother, values: np.ndarray) -> None:
    rows = np.stack([values, values[::-1]])[None]
    smoothed = smoother.smooth(rows)
    assert smoothed.shape == rows.shape
    assert smoothed[0, 0] == pytest.approx(smoother.smooth(values), abs=1e-9)
    assert smoothed[0, 1] == pytest.approx(smoother.smooth(values[::-1]), abs=1e-9)


@pytest.mark.parametrize("smoother", SMOOTHERS)
@given(n_slots=st.integers(0, 60), level=st.floats(0, 1))
def test_a_constant_comes_back(smoother: Smoother, n_slots: int, level: float) -> None:
    values = np.full(n_slots, level)
    assert smoother.smooth(values) == pytest.approx(values, abs=1e-9)


@given(VALUES, st.sampled_from([1, 3, 5, 15]))
def test_the_median_is_that_of_the_window(values: np.ndarray, window_slots: int) -> None:
    reach = window_slots // 2
    padded = [values[0]] * reach + values.tolist() + [values[-1]] * reach
    expected = [np.median(padded[at : at + window_slots]) for at in range(len(values))]
    smoothed = MedianTrendSmoother(window_slots, 1.0).smooth(values)
    assert smoothed == pytest.approx(expected)


@given(VALUES, st.floats(0.05, 1.0))
def test_the_trend_is_its_recurrence(values: np.ndarray, weight: float) -> None:
    previous, delta = values[0], 0.0
    expected = []
    for value in values:
        current = weight * value + (1 - weight) * (previous + delta)
        previous, delta = current, current - previous
        expected.append(current)
    smoothed = MedianTrendSmoother(1, weight).smooth(values)
    assert smoothed == pytest.approx(expected, abs=1e-8)


def test_a_repetition_shorter_than_the_window_is_smoothed_away() -> None:
    values = np.zeros(40)
    values[20:25] = 1.0
    assert MedianTrendSmoother(5).smooth(values).max() > 0.9
    assert MedianTrendSmoother(15).smooth(values).max() < 1e-9


@pytest.mark.parametrize(("window_slots", "weight"), [(4, 0.6), (0, 0.6), (5, 0.0), (5, 1.1)])
def test_a_median_or_trend_that_smooths_nothing_is_refused(
    window_slots: int, weight: float
) -> None:
    with pytest.raises(ValueError, match=r"must be odd|weight"):
        MedianTrendSmoother(window_slots, weight)


@given(VALUES)
def test_without_mix_the_spectral_smoother_does_nothing(values: np.ndarray) -> None:
    assert SpectralSmoother(mix=0.0).smooth(values) == pytest.approx(values, abs=1e-9)


SPECTRAL = st.builds(
    SpectralSmoother, st.floats(0.05, 1.0), st.booleans(), st.floats(0, 1), st.integers(0, 6)
)


@given(VALUES, SPECTRAL)
def test_the_spectral_smoother_is_its_direct_transform(
    values: np.ndarray, smoother: SpectralSmoother
) -> None:
    taper_bins, mix = smoother.taper_bins, smoother.mix
    n_slots = len(values)
    n_bins = n_slots // 2 + 1
    turns = np.outer(np.arange(n_slots), np.arange(n_bins)) / n_slots
    spectrum = values @ np.exp(-2j * math.pi * turns)
    energy = np.abs(spectrum) ** 2
    last = int(smoother.last_kept_bin(energy)[0])
    counted = energy[0 if smoother.counts_dc else 1 :]
    assert (
        counted[: last + 1].sum() >= smoother.energy_share * counted.sum() * (1 - 1e-9)
        or n_bins == 1
    )
    fade = [
        1.0
        if bin_ <= last
        else 0.5 + 0.5 * math.cos(math.pi * min(1.0, (bin_ - last) / (taper_bins + 1)))
        for bin_ in range(n_bins)
    ]
    weight = np.array([1.0 if bin_ in (0, n_slots / 2) else 2.0 for bin_ in range(n_bins)])
    low = ((spectrum * fade * weight) * np.exp(2j * math.pi * turns)).real.sum(axis=1) / n_slots
    expected = (1 - mix) * values + mix * low
    # Near a tie of energies the two transforms may cut at neighbouring bins.
    cut = int(smoother.last_kept_bin(np.abs(np.fft.rfft(values)) ** 2)[0])
    if cut == last:
        assert smoother.smooth(values) == pytest.approx(expected, abs=1e-6)


def test_counting_dc_leaves_a_constant_of_even_scores() -> None:
    values = 0.5 + 0.3 * np.random.default_rng(0).random(188)
    with_dc = SpectralSmoother(counts_dc=True, mix=1.0, taper_bins=0).smooth(values)
    without = SpectralSmoother(counts_dc=False, mix=1.0, taper_bins=0).smooth(values)
    assert np.ptp(with_dc) < 1e-9
    assert np.ptp(without) > 0.05


def test_every_spectral_parameter_counts() -> None:
    values = np.random.default_rng(1).random(100) ** 4
    plain = SpectralSmoother().smooth(values)
    for other in (
        SpectralSmoother(energy_share=0.3),
        SpectralSmoother(counts_dc=True),
        SpectralSmoother(mix=0.9),
        SpectralSmoother(taper_bins=0),
    ):
        assert not np.allclose(plain, other.smooth(values), atol=1e-6)


def test_rows_have_their_own_cut_off() -> None:
    turns = 2 * math.pi * np.arange(64) / 64
    rows = np.stack([1 + np.sin(turns * 3), 1 + np.sin(turns * 20)])
    energy = np.abs(np.fft.rfft(rows)) ** 2
    assert SpectralSmoother().last_kept_bin(energy)[:, 0].tolist() == [3, 20]


@pytest.mark.parametrize(
    ("energy_share", "mix", "taper_bins"),
    [(0.0, 0.5, 4), (1.1, 0.5, 4), (0.7, 1.1, 4), (0.7, 0.5, -1)],
)
def test_a_spectral_smoother_out_of_range_is_refused(
    energy_share: float, mix: float, taper_bins: int
) -> None:
    with pytest.raises(ValueError, match=r"energy share|mix|taper"):
        SpectralSmoother(energy_share, mix=mix, taper_bins=taper_bins)
