"""Whether a figure grows with time: its slope, and how much of that is noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.targets import Verdict

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

N_RESAMPLES = 2000
MIN_VALUES = 10  # fewer say nothing about their own noise
_BLOCK = 5  # neighbouring values are drawn together: what disturbs one disturbs the next
_TAIL_PERCENTS = (2.5, 97.5)
_SEED = 1989


@dataclass(frozen=True, slots=True)
class Slope:
    """A straight line's slope with its 95 % interval; infinite where there are too few values.

    Attributes:
        per_hour: The slope of the least-squares line, in the figure's unit an hour.
        low: 2.5th percentile of the resamples.
        high: 97.5th percentile.
    """

    per_hour: float
    low: float
    high: float

    def as_json(self) -> dict[str, float | None]:
        """Return it for the results file; null where it is not known."""
        return {
            name: round(value, 4) if np.isfinite(value) else None
            for name, value in (
                ("per_hour", self.per_hour),
                ("low", self.low),
                ("high", self.high),
            )
        }


def slope(at_hours: ArrayLike, values: ArrayLike) -> Slope:
    """Return how a figure grows.

    The interval comes from a moving-block bootstrap of the residuals (Kuensch, "The jackknife and
    the bootstrap for general stationary observations", 1989), so that noise that lasts for some
    values does not pass for a trend.

    Args:
        at_hours: When each value was measured, not all at once.
        values: As many.
    """
    hours, figures = np.asarray(at_hours, float), np.asarray(values, float)
    if len(hours) < MIN_VALUES:
        return Slope(np.nan, -np.inf, np.inf)
    centred = hours - hours.mean()
    weights = centred / np.sum(centred**2)
    per_hour = float(weights @ figures)
    residuals = figures - figures.mean() - per_hour * centred
    low, high = np.percentile(_slopes_of_noise(weights, residuals), _TAIL_PERCENTS)
    return Slope(per_hour, per_hour + float(low), per_hour + float(high))


def _slopes_of_noise(weights: Floats, residuals: Floats) -> Floats:
    """Return the slopes that residuals alone have when their blocks are drawn anew."""
    chance = np.random.default_rng(_SEED)
    n = len(residuals)
    firsts = chance.integers(0, n - _BLOCK + 1, (N_RESAMPLES, -(-n // _BLOCK)))
    drawn = residuals[firsts[..., None] + np.arange(_BLOCK)].reshape(N_RESAMPLES, -1)[:, :n]
    slopes: Floats = (drawn - drawn.mean(axis=1, keepdims=True)) @ weights
    return slopes


def growth_verdict(name: str, found: Slope, bound_per_hour: float, unit: str) -> Verdict:
    """Judge that a figure does not grow.

    Met where the line's 95 % interval reaches down to the bound or below: what is measured could
    be noise around a growth that does not matter.

    Args:
        name: The figure.
        found: Its slope.
        bound_per_hour: Growth that does not matter.
        unit: Unit of the figure.
    """
    is_known = np.isfinite(found.per_hour)
    return Verdict(
        f"{name}: growth that noise does not explain",
        max(found.low, 0.0) if is_known else None,
        bound_per_hour,
        f"{unit} an hour",
        f"slope {found.per_hour:+.3g} [{found.low:+.3g}, {found.high:+.3g}]" if is_known else "",
    )
