from __future__ import annotations

import numpy as np
import pytest

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.assembly import DriverOptions, open_driver
from audiokv.streaming.policy.budget import BudgetPreset
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.prefetch import NoPrefetch, StepPrefetch
from audiokv.streaming.policy.profiles import PROFILES, PolicyProfile
from audiokv.streaming.policy.recency_policies import FifoPolicy
from audiokv.streaming.policy.smoothing import NoSmoother


def test_it_takes_a_name_or_a_policy() -> None:
    assert open_driver("h2o", 100, 20).policy.name == "h2o"
    mine = FifoPolicy()
    assert open_driver(mine, 100, 20).policy is mine
    with pytest.raises(ConfigError, match="no eviction policy 'best'"):
        open_driver("best", 100, 20)


def test_budget_and_ledger_are_those_given() -> None:
    ledger = SlotLedger(n_sinks=0)
    options = DriverOptions(PROFILES["long"], high_water=0.7)
    driver = open_driver("audiokv", 77, 20, options, ledger)
    assert driver.ledger is ledger
    assert (driver.budget.total_slots, driver.budget.high_water) == (77, 0.7)
    assert driver.budget.preset is BudgetPreset.LONG
    assert open_driver("audiokv", 5, 20).ledger is not open_driver("audiokv", 5, 20).ledger


def scores_of(options: DriverOptions) -> list[float]:
    """Scores that a forced plan leaves behind, on a stream with every trait that counts."""
    rng = np.random.default_rng(0)
    driver = open_driver("audiokv", 90, 20, options)
    driver.append([SlotMarks(at * 20, at * 20 + 20, is_voice=at % 3 > 0) for at in range(100)])
    driver.observe(rng.random(100) ** 3)
    driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(100, 112)])
    driver.observe(np.concatenate((rng.random(100) ** 3, np.full(12, 40.0))))
    driver.plan()
    return [float(score) for score in driver.ledger.score]


@pytest.mark.parametrize(
    "options",
    [
        DriverOptions(smoother=NoSmoother()),
        DriverOptions(PolicyProfile(median_slots=15)),
        DriverOptions(PolicyProfile(voice_weight=0.1)),
        DriverOptions(PolicyProfile(burst_factor=1e9)),
        DriverOptions(PolicyProfile(alpha=0.9)),
    ],
)
def test_what_the_scores_depend_on_reaches_them(options: DriverOptions) -> None:
    assert scores_of(options) != scores_of(DriverOptions())


def test_the_pause_of_the_profile_counts() -> None:
    for pause_ms, is_pause in ((200, True), (600, False)):
        driver = open_driver("audiokv", 90, 20, DriverOptions(PolicyProfile(pause_ms=pause_ms)))
        driver.append([SlotMarks(0, 20)])
        driver.append([SlotMarks(at * 20, at * 20 + 20, is_voice=False) for at in range(1, 12)])
        assert driver.rhythm.is_pause == is_pause


@pytest.mark.parametrize(("min_retention_ms", "n_shared"), [(200, 6), (400, 1)])
def test_the_minimum_retention_of_the_profile_counts(min_retention_ms: int, n_shared: int) -> None:
    options = DriverOptions(PolicyProfile(min_retention_ms=min_retention_ms))
    driver = open_driver("audiokv", 90, 20, options, SlotLedger(n_sinks=0))
    driver.append([SlotMarks(at * 20, at * 20 + 20, is_voice=at < 4) for at in range(20)])
    assert 20 - len(driver.share_silence()) == n_shared - 1
    assert driver.ledger.multiplicity.max() == n_shared


def test_the_prefetch_is_the_one_given() -> None:
    for prefetch, n_ahead in ((StepPrefetch(), 8), (NoPrefetch(), 0)):
        driver = open_driver("audiokv", 100, 20, DriverOptions(prefetch=prefetch))
        driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(92)])
        driver.append([SlotMarks(at * 20, at * 20 + 20) for at in range(92, 100)])
        assert len(driver.plan_ahead().indices) == n_ahead
