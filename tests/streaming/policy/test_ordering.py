from __future__ import annotations

import numpy as np
import pytest

from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.ordering import eviction_order, take


def ledger_of(n_audio: int, *, has_prompt: bool = False) -> SlotLedger:
    ledger = SlotLedger()
    if has_prompt:
        ledger.append([SlotMarks(0, 0, is_prompt=True)])
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_audio)])
    return ledger


def test_earlier_keys_decide_before_later_ones_and_age_at_a_tie() -> None:
    order = eviction_order(ledger_of(4), [1, 0, 1, 0], [5, 9, 4, 9])
    assert order.tolist() == [1, 3, 2, 0]


def test_without_keys_the_oldest_go_first_and_the_prompt_last() -> None:
    assert eviction_order(ledger_of(3, has_prompt=True)).tolist() == [1, 2, 3, 0]
    assert eviction_order(ledger_of(2, has_prompt=True), [0, 9, 8]).tolist() == [2, 1, 0]


def test_taking_sorts_the_first_ones() -> None:
    order = np.array([3, 1, 2, 0])
    assert take(order, 0).tolist() == []
    assert take(order, 2).tolist() == [1, 3]
    assert take(order, 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [-1, 5])
def test_counts_out_of_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"evict {count} of 4"):
        take(np.arange(4), count)
