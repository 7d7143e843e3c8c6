from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.eviction_amount import EvictionAmount, relative_entropy


def test_even_importance_has_full_entropy_and_a_single_one_none() -> None:
    assert relative_entropy(np.full(50, 0.2)) == pytest.approx(1.0)
    assert relative_entropy(np.eye(50)[3]) == 0.0
    half = np.zeros(16)
    half[:4] = 1.0
    assert relative_entropy(half) == pytest.approx(0.5)


def test_what_has_no_spread_counts_as_even() -> None:
    for importance in (np.empty(0), np.ones(1), np.zeros(9)):
        assert relative_entropy(importance) == 1.0


@pytest.mark.parametrize(
    ("base_rate", "sharpness", "n_slots"), [(0.01, 0.2, 21), (0.05, 0.2, 25), (0.01, 0.15, 16)]
)
def test_both_rates_count_at_no_entropy(base_rate: float, sharpness: float, n_slots: int) -> None:
    assert EvictionAmount(base_rate, sharpness).slots(np.eye(100)[0]) == n_slots


def test_at_full_entropy_only_the_base_rate_counts() -> None:
    assert EvictionAmount(0.03, 0.9).slots(np.ones(100)) == 3
    assert EvictionAmount(0.0, 0.9).slots(np.ones(100)) == 0
    assert EvictionAmount(0.001, 0.0).slots(np.ones(100)) == 1


@given(st.lists(st.floats(0, 1e6), max_size=50), st.floats(0, 0.5), st.floats(0, 0.5))
def test_the_amount_never_exceeds_the_slots(
    importance: list[float], base_rate: float, sharpness: float
) -> None:
    amount = EvictionAmount(base_rate, sharpness)
    assert 0 <= relative_entropy(np.array(importance)) <= 1
    assert 0 <= amount.slots(np.array(importance)) <= len(importance)


@pytest.mark.parametrize("rates", [(-0.1, 0.2), (0.1, -0.2), (0.6, 0.5), (float("nan"), 0.1)])
def test_impossible_rates_are_refused(rates: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="base rate and sharpness"):
        EvictionAmount(*rates)
