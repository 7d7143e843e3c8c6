from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.cache.head_limits import HeadLimits, limits_by_scores
from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.recency_policies import FifoPolicy


def ledger_of(n_slots: int, *, n_sinks: int = 0) -> SlotLedger:
    ledger = SlotLedger(n_sinks=n_sinks, heads=HeadRecord(2, 2))
    ledger.append([SlotMarks(20 * i, 20 * i + 20) for i in range(n_slots)])
    return ledger


def heads_of(ledger: SlotLedger) -> HeadRecord:
    assert ledger.heads is not None
    return ledger.heads


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=4, max_size=4), st.integers(1, 20))
def test_each_head_keeps_its_own_number(limits: list[int], n_slots: int) -> None:
    ledger = ledger_of(n_slots)
    policy = HeadLimits(FifoPolicy(), np.array(limits).reshape(2, 2))
    mask = policy.keep_mask(ledger, n_slots)
    expected = np.minimum(policy.n_slots, n_slots)
    assert np.array_equal(mask.sum(axis=-1), expected)
    assert policy.are_kept(heads_of(ledger)) == bool((policy.n_slots >= n_slots).all())
    heads_of(ledger).hold_only(mask)
    assert policy.are_kept(heads_of(ledger))


def test_attention_decides_after_sinks_and_the_recent_window() -> None:
    ledger = ledger_of(12, n_sinks=1)
    importance = np.zeros((2, 2, 12))
    importance[0, 0, [4, 6]] = 1.0
    importance[1, 1, [2, 3]] = 1.0
    heads_of(ledger).observe(importance, np.ones(12, np.bool_), 0.3)
    mask = HeadLimits(FifoPolicy(), np.full((2, 2), 4)).keep_mask(ledger, 12)
    assert np.flatnonzero(mask[0, 0]).tolist() == [0, 4, 6, 11]
    assert np.flatnonzero(mask[1, 1]).tolist() == [0, 2, 3, 11]


def test_one_set_for_all_is_the_shared_policys() -> None:
    ledger = ledger_of(5)
    policy = HeadLimits(FifoPolicy(), np.full((2, 2), 3))
    assert policy.choose(ledger, 2).tolist() == FifoPolicy().choose(ledger, 2).tolist()


def test_needs_a_record_of_the_heads() -> None:
    with pytest.raises(ValueError, match="no record per head"):
        HeadLimits(FifoPolicy(), np.full((2, 2), 3)).keep_mask(SlotLedger(), 3)


@given(
    st.lists(st.integers(0, 9), min_size=6, max_size=6),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_limits_by_scores_keep_the_total_and_the_floor(
    scores: list[int], n_slots: int, floor_share: float
) -> None:
    table = np.array(scores, np.float64).reshape(2, 3)
    limits = limits_by_scores(table, n_slots, floor_share)
    assert limits.sum() == 6 * n_slots
    assert limits.min() >= int(floor_share * n_slots)
    if floor_share == 1 or not any(scores):
        assert (limits == n_slots).all()
    else:
        order = np.argsort(table.ravel())
        assert (np.diff(limits.ravel()[order]) >= -1).all()


def test_a_floor_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"floor 1\.5"):
        limits_by_scores(np.ones((1, 2)), 4, 1.5)
