from __future__ import annotations

import pytest

from benchmarks.retention_held import BudgetBrokenError, CacheLog, CacheStep

STEPS = [
    CacheStep(10, 10, 80),
    CacheStep(40, 20, 160, is_cut=True),
    CacheStep(50, 18, 144),
]


def test_steps_are_summed_up_against_the_budget() -> None:
    held = CacheLog(list(STEPS)).held(full_slots=50, budget_slots=20, slot_bytes=8)
    assert (held.max_bytes, held.budget_bytes) == (160, 160)
    assert held.mean_full_bytes == 152.0  # only once there is more audio than budget
    assert held.mean_share == 0.48
    assert (held.n_steps, held.n_cut, held.full_slots) == (3, 1, 50)
    held.check("nobody")


def test_the_longest_window_counts() -> None:
    assert CacheLog(list(STEPS)).full_slots == 50
    assert CacheLog().full_slots == 0


def test_a_broken_budget_is_no_result() -> None:
    held = CacheLog(list(STEPS)).held(full_slots=50, budget_slots=19, slot_bytes=8)
    with pytest.raises(BudgetBrokenError, match="fifo on a: 160 of 152 bytes"):
        held.check("fifo on a")


def test_without_steps_nothing_is_held() -> None:
    held = CacheLog().held(0, 5, 8)
    assert (held.max_bytes, held.mean_full_bytes, held.mean_share) == (0, 0.0, 0.0)
    assert (held.max_of_budget, CacheLog().held(0, 0, 8).max_of_budget) == (0.0, 0.0)
