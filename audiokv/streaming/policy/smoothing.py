"""Score smoothers: median and trend, spectral, and none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class NoSmoother:
    """Leaves scores as they are."""

    def smooth(self, values: Floats) -> Floats:
        """Return the values."""
        return values


@dataclass(frozen=True, slots=True)
class MedianTrendSmoother:
    """Running median against single spikes, then a trend that follows without lag.

    The trend is ``w*current + (1-w)*(previous + delta)`` along the slots, ``previous`` and
    ``delta`` being the last trend value and its last change. Its delay at constant slope is zero.
    The ends continue with their outermost value.

    Attributes:
        window_slots: Width W of the median, odd: 5, in the stutter profile 15.
        current_weight: w, over 0 and up to 1.

    Raises:
        ValueError: The window is not odd, or the weight out of range.
    """

    window_slots: int = 5
    current_weight: float = 0.6

    def __post_init__(self) -> None:
        """Refuse what does not smooth."""
        if self.window_slots < 1 or self.window_slots % 2 == 0:
            raise ValueError(f"the median window must be odd, not {self.window_slots}")
        if not 0 < self.current_weight <= 1:
            raise ValueError(f"the weight {self.current_weight} is not over 0 and up to 1")

    def smooth(self, values: Floats) -> Floats:
        """Return the trend of the running median, shape (..., n)."""
        if not values.shape[-1]:
            return values
        return self._trend(self._median(values))

    def _median(self, values: Floats) -> Floats:
        reach = self.window_slots // 2
        padded = _extended(values, reach, reach)
        windows = sliding_window_view(padded, self.window_slots, axis=-1)
        # An odd window's median is its middle value: a partition is cheaper than np.median.
        medians: Floats = np.partition(windows, reach, axis=-1)[..., reach]
        return medians

    def _trend(self, values: Floats) -> Floats:
        response = _trend_response(self.current_weight)
        padded = _extended(values, len(response) - 1, 0)
        rows = padded.reshape(-1, padded.shape[-1])
        trends = [np.convolve(row, response, mode="valid") for row in rows]
        return np.stack(trends).reshape(values.shape)


@dataclass(frozen=True, slots=True)
class SpectralSmoother:
    """Low-pass along the slots by cumulative spectral energy, mixed with the input.

    The paper's spectral score smoothing. Scores are positive, so their mean alone often holds
    most of the energy, and counting it would leave nothing but a constant; ``counts_dc`` says
    whether it is counted. It is never removed from the signal.

    Attributes:
        energy_share: Part of the energy the kept bins must hold, over 0 and up to 1.
        counts_dc: Whether bin 0 counts as energy.
        mix: Part of the smoothed signal in the result, 0 to 1.
        taper_bins: Bins over which a half cosine fades out above the last kept one.

    Raises:
        ValueError: A value out of range.
    """

    energy_share: float = 0.7
    counts_dc: bool = False
    mix: float = 0.5
    taper_bins: int = 4

    def __post_init__(self) -> None:
        """Refuse what does not smooth."""
        if not 0 < self.energy_share <= 1:
            raise ValueError(f"the energy share {self.energy_share} is not over 0 and up to 1")
        if not 0 <= self.mix <= 1:
            raise ValueError(f"the mix {self.mix} is not 0 to 1")
        if self.taper_bins < 0:
            raise ValueError(f"a taper of {self.taper_bins} bins cannot fade")

    def smooth(self, values: Floats) -> Floats:
        """Return the mixed scores, shape (..., n); every row has its own cut-off."""
        n_slots = values.shape[-1]
        if not n_slots:
            return values
        spectrum = np.fft.rfft(values, axis=-1)
        last = self.last_kept_bin(np.abs(spectrum) ** 2)
        smoothed = np.fft.irfft(spectrum * self._mask(last, spectrum.shape[-1]), n=n_slots, axis=-1)
        return (1 - self.mix) * values + self.mix * smoothed

    def last_kept_bin(self, energy: Floats) -> Indices:
        """Return the first bin up to which the share of the energy lies, shape (..., 1)."""
        counted = energy.copy()
        if not self.counts_dc:
            counted[..., 0] = 0.0
        running = counted.cumsum(axis=-1)
        # The rounding of the sum must not push the cut-off one bin on.
        needed = self.energy_share * running[..., -1:] * (1 - 1e-12)
        bins: Indices = np.count_nonzero(running < needed, axis=-1, keepdims=True)
        return bins

    def _mask(self, last: Indices, n_bins: int) -> Floats:
        past = (np.arange(n_bins) - last) / (self.taper_bins + 1)
        return 0.5 + 0.5 * np.cos(math.pi * np.clip(past, 0.0, 1.0))


def _extended(values: Floats, n_before: int, n_after: int) -> Floats:
    """Continue values at both ends of the last axis with the outermost one."""
    before = np.broadcast_to(values[..., :1], (*values.shape[:-1], n_before))
    after = np.broadcast_to(values[..., -1:], (*values.shape[:-1], n_after))
    return np.concatenate((before, values, after), axis=-1)


@lru_cache(maxsize=16)
def _trend_response(current_weight: float) -> Floats:
    """Return the impulse response of the trend recurrence, cut where it has died away.

    As a finite convolution it runs at numpy's speed; the recurrence itself would not.
    """
    rest = 1.0 - current_weight
    response = [current_weight]
    before_ago, one_ago = 0.0, current_weight
    # Both poles have radius sqrt(rest), so this many terms leave less than 1e-12.
    n_terms = 1 if rest == 0 else min(4096, 2 + math.ceil(2 * math.log(1e-12) / math.log(rest)))
    for _ in range(n_terms):
        before_ago, one_ago = one_ago, rest * (2 * one_ago - before_ago)
        response.append(one_ago)
    return np.array(response)
