from __future__ import annotations

import numpy as np
import pytest

from benchmarks.slopes import MIN_VALUES, Slope, growth_verdict, slope

HOURS = np.arange(60) / 60


def test_a_line_has_its_slope_without_doubt() -> None:
    found = slope(HOURS, 3.0 + 2.0 * HOURS)
    assert (found.per_hour, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_noise_lies_within_its_own_interval_nearly_always() -> None:
    chance = np.random.default_rng(1)
    found = [slope(HOURS, chance.normal(size=60)) for _ in range(40)]
    assert sum(one.low <= 0 <= one.high for one in found) >= 34
    assert all(one.low < one.per_hour < one.high for one in found)


def test_noise_that_lasts_widens_the_interval() -> None:
    chance = np.random.default_rng(2)
    short = chance.normal(size=60)
    lasting = np.repeat(short[:12], 5)
    widths = [found.high - found.low for found in (slope(HOURS, short), slope(HOURS, lasting))]
    assert widths[1] > 1.5 * widths[0]


def test_growth_shows_through_noise() -> None:
    chance = np.random.default_rng(3)
    found = slope(HOURS, 5.0 * HOURS + chance.normal(size=60))
    assert found.low > 1.0


def test_few_values_say_nothing() -> None:
    found = slope(HOURS[: MIN_VALUES - 1], HOURS[: MIN_VALUES - 1])
    assert found.as_json() == {"per_hour": None, "low": None, "high": None}
    verdict = growth_verdict("memory", found, 8.0, "MB")
    assert verdict.measured is None
    assert not verdict.is_met


@pytest.mark.parametrize(("low", "is_met"), [(-3.0, True), (0.0, True), (8.0, True), (8.1, False)])
def test_growth_is_judged_by_the_least_that_noise_leaves(
    low: float,
    is_met: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    verdict = growth_verdict("memory", Slope(9.0, low, 12.0), 8.0, "MB")
    assert verdict.is_met is is_met
    assert verdict.measured == max(low, 0.0)
    assert verdict.unit == "MB an hour"
    assert "slope +9" in verdict.note
