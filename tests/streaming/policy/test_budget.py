from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.budget import Budget, BudgetPreset
from audiokv.streaming.policy.marks import Pool


@given(st.integers(1, 10**6), st.sampled_from(BudgetPreset))
def test_pool_shares_sum_to_the_total_exactly(total_slots: int, preset: BudgetPreset) -> None:
    budget = Budget(total_slots, preset)
    shares = [budget.slots_of(pool) for pool in Pool]
    assert sum(shares) == total_slots
    assert all(share >= 0 for share in shares)


@pytest.mark.parametrize(
    ("preset", "shares"),
    [
        (BudgetPreset.BALANCED, [600, 300, 100]),
        (BudgetPreset.SHORT, [500, 400, 100]),
        (BudgetPreset.LONG, [700, 250, 50]),
    ],
)
def test_presets_divide_as_named(preset: BudgetPreset, shares: list[int]) -> None:
    assert [Budget(1000, preset).slots_of(pool) for pool in Pool] == shares


@pytest.mark.parametrize(("high_water", "slots"), [(0.9, 90), (0.5, 50), (1.0, 100)])
def test_the_mark_is_a_share_of_the_total(high_water: float, slots: int) -> None:
    assert Budget(100, high_water=high_water).high_water_slots == slots
    assert Budget(100).high_water_slots == 90


@pytest.mark.parametrize(("total_slots", "high_water"), [(0, 0.9), (10, 0.0), (10, 1.1)])
def test_impossible_budgets_are_refused(total_slots: int, high_water: float) -> None:
    with pytest.raises(ValueError, match=r"budget of 0 slots|high-water mark"):
        Budget(total_slots, high_water=high_water)
