from __future__ import annotations

import numpy as np
import pytest

from audiokv.streaming.audio_cache import CacheCounters, CacheOptions, count_cache
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.assembly import open_driver
from audiokv.streaming.policy.marks import SlotMarks


def test_a_budget_is_off_unless_set() -> None:
    assert CacheOptions().budget_slots is None


def test_a_bound_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        CacheOptions(0)
    with pytest.raises(ConfigError) as caught:
        CacheOptions(10, "coin")
    assert caught.value.code == "unknown_policy"
    assert CacheOptions(1).budget_slots == 1


def counters_after(n_slots: int, *, is_voice: bool = True) -> CacheCounters:
    driver = open_driver("uniform", 40, 20)
    for start in range(0, n_slots, 5):
        marks = [SlotMarks(20 * i, 20 * i + 20, is_voice=is_voice) for i in range(start, start + 5)]
        driver.append(marks)
        driver.apply(driver.plan())
        driver.observe(np.full(driver.ledger.held, 1 / driver.ledger.held))
        driver.settle()
        driver.apply(driver.plan_ahead())
    return count_cache(driver, slot_bytes=100)


def test_counters_add_up() -> None:
    counters = counters_after(60)
    assert (counters.policy, counters.budget_slots, counters.seen_slots) == ("uniform", 40, 60)
    pools = counters.pools
    assert pools.base + pools.buffer + pools.reserve == counters.held_slots <= 40
    assert counters.held_bytes == 100 * counters.held_slots
    assert pools.reserve > 0
    assert pools.buffer > 0


def test_evictions_are_told_apart_by_when_they_ran() -> None:
    spoken, quiet = counters_after(60).n_evictions, counters_after(60, is_voice=False).n_evictions
    assert (spoken.hot, spoken.in_pauses) == (0, 0)
    assert spoken.between_steps >= 3
    assert (quiet.hot, quiet.between_steps) == (0, 0)
    assert quiet.in_pauses >= 3
    driver = open_driver("uniform", 5, 20)
    driver.append([SlotMarks(20 * i, 20 * i + 20) for i in range(9)])
    driver.apply(driver.plan())
    assert count_cache(driver, 1).n_evictions.hot == 1
