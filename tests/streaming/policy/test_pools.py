from __future__ import annotations

import numpy as np
import pytest

from audiokv.streaming.policy.budget import Budget, BudgetPreset
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.pools import PoolKeeper


def stream(n_slots: int) -> SlotLedger:
    ledger = SlotLedger(n_sinks=0)
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_slots)])
    return ledger


def test_a_buffer_within_its_share_stays() -> None:
    assert len(PoolKeeper(Budget(10)).promotions(stream(3))) == 0


@pytest.mark.parametrize(
    ("preset", "n_promoted"), [(BudgetPreset.BALANCED, 7), (BudgetPreset.SHORT, 6)]
)
def test_the_oldest_beyond_the_share_are_promoted(preset: BudgetPreset, n_promoted: int) -> None:
    keeper = PoolKeeper(Budget(10, preset), min_retention_ms=0)
    assert keeper.promotions(stream(10)).tolist() == list(range(n_promoted))


@pytest.mark.parametrize(("min_retention_ms", "n_promoted"), [(0, 7), (120, 4), (200, 0)])
def test_young_slots_wait(min_retention_ms: int, n_promoted: int) -> None:
    keeper = PoolKeeper(Budget(10), min_retention_ms)
    assert keeper.promotions(stream(10)).tolist() == list(range(n_promoted))


def test_slots_no_probe_has_seen_wait_where_probes_run() -> None:
    ledger = stream(4)
    ledger.attention.observe(np.full(4, 0.25), 0.3)
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(4, 10)])
    assert PoolKeeper(Budget(10), 0).promotions(ledger).tolist() == [0, 1, 2, 3]


def test_segment_ends_beyond_the_reserve_are_released_oldest_first() -> None:
    ledger = stream(10)
    keeper = PoolKeeper(Budget(20))  # a reserve of two
    for end_ms in (20, 60):
        ledger.mark_segment_end(end_ms)
    assert len(keeper.released_ends(ledger)) == 0
    for end_ms in (100, 200):
        ledger.mark_segment_end(end_ms)
    assert keeper.released_ends(ledger).tolist() == [0, 2]
