from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from audiokv.streaming.audio_cache import CacheCounters, CacheOptions, count_cache
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.assembly import open_driver
from audiokv.streaming.policy.marks import Reason, SlotMarks


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


def test_what_left_adds_up_and_is_told_apart_by_reason() -> None:
    driver = open_driver("fifo", 10, 20)
    driver.append([SlotMarks(20 * i, 20 * i + 20) for i in range(14)])
    driver.apply(driver.plan())
    counters = count_cache(driver, 1)
    assert counters.left_slots.forced >= 4
    assert (counters.left_slots.ahead, counters.left_slots.expired) == (0, 0)
    ledger = driver.ledger
    ledger.evict(ledger.rows_before(ledger.start_ms[2]), Reason.EXPIRED)
    ledger.evict(np.array([0]), Reason.AHEAD)
    ledger.append([SlotMarks(280 + 20 * i, 300 + 20 * i, is_voice=False) for i in range(4)])
    ledger.share_silence(until_ms=400)
    after = count_cache(driver, 1)
    left = after.left_slots
    assert (left.expired, left.ahead, left.shared) == (2, 1, 3)
    assert sum(asdict(left).values()) == after.seen_slots - after.held_slots
    assert sum(asdict(after.chosen_slots).values()) == left.forced + left.ahead


def test_what_the_policy_chose_is_told_apart() -> None:
    driver = open_driver("fifo", 6, 20)
    voiced = [True, True, True, False, False, True, True, True, True, True]
    marks = [SlotMarks(20 * i, 20 * i + 20, is_voice=v) for i, v in enumerate(voiced)]
    driver.append(marks[:6])
    driver.commit_until(40)
    driver.append(marks[6:])
    plan = driver.plan()
    driver.apply(plan)
    assert plan.indices.tolist() == list(range(len(plan.indices)))
    chosen = count_cache(driver, 1).chosen_slots
    expected = ["committed", "committed", "speech", "silence", "silence", "speech"]
    gone = expected[: len(plan.indices)]
    assert asdict(chosen) == {name: gone.count(name) for name in asdict(chosen)}
    assert chosen.committed == 2
    assert chosen.silence >= 1
