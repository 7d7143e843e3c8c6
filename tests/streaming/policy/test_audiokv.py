from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.budget import BudgetPreset
from audiokv.streaming.policy.guards import Guard, Guards
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks

if TYPE_CHECKING:
    from tests.streaming.policy.conftest import LedgerBuilder

# Guards as narrow as they get: the last slot, and boundary slots with their neighbours.
NARROW = Guards(20, min_retention_ms=0, boundary_frames=0)
POLICY = AudioKvPolicy(NARROW)


def stream(scores: list[float], languages: str = "", *, n_sinks: int = 0) -> SlotLedger:
    ledger = SlotLedger(n_sinks=n_sinks)
    ledger.append(
        [
            SlotMarks(at * 20, at * 20 + 20, language=languages[at] if languages else None)
            for at in range(len(scores))
        ]
    )
    ledger.set_scores(np.array(scores))
    return ledger


@given(st.integers(0, 80), st.integers(0, 10**6), st.data())
def test_guards_survive_while_there_is_anything_else(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed)
    policy = AudioKvPolicy(Guards(20, min_retention_ms=60))
    count = data.draw(st.integers(0, n_slots))
    guard = policy.guards.rate(ledger)
    gone = policy.choose(ledger, count)
    assert len(np.unique(gone)) == count
    kept = np.setdiff1d(np.arange(n_slots), gone)
    # Whatever gave way, nothing that stays is guarded less.
    assert guard[gone].max(initial=0) <= guard[kept].min(initial=Guard.PROMPT)


@given(st.integers(0, 80), st.integers(0, 10**6), st.data())
def test_equal_ledgers_give_equal_choices_and_stay_unchanged(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, n_slots))
    ledger = build_ledger(n_slots, seed)
    first = POLICY.choose(ledger, count)
    assert np.array_equal(first, POLICY.choose(ledger, count))
    assert np.array_equal(first, POLICY.choose(build_ledger(n_slots, seed), count))


@given(st.integers(1, 80), st.integers(0, 10**6), st.data())
def test_a_larger_count_without_base_or_languages_only_adds(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed)
    ledger.promote(np.empty(0, np.intp))
    policy = AudioKvPolicy(NARROW, LanguageShares(0.0))
    count = data.draw(st.integers(1, n_slots))
    order = [set(policy.choose(ledger, part).tolist()) for part in (count - 1, count)]
    if not (ledger.pool == 0).any():
        assert order[0] < order[1]


def test_committed_slots_leave_before_any_other_however_good() -> None:
    ledger = stream([0.9, 0.8, 0.1, 0.2, 0.3, 0.9])
    ledger.commit_until(40)
    assert POLICY.choose(ledger, 2).tolist() == [0, 1]
    assert POLICY.choose(ledger, 3).tolist() == [0, 1, 2]


def test_lower_scores_leave_first_and_older_ones_at_a_tie() -> None:
    assert POLICY.choose(stream([0.5, 0.1, 0.4, 0.2, 0.9]), 2).tolist() == [1, 3]
    assert POLICY.choose(stream([0.5, 0.5, 0.5, 0.5, 0.9]), 2).tolist() == [0, 1]


def test_the_buffer_leaves_before_the_base_within_its_share() -> None:
    ledger = stream([0.1, 0.1, 0.5, 0.6, 0.7, 0.9])
    ledger.promote(np.array([0, 1]))
    assert POLICY.choose(ledger, 2).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("preset", "gone"), [(BudgetPreset.SHORT, [0, 1, 2]), (BudgetPreset.LONG, [0, 6, 7])]
)
def test_what_the_base_holds_beyond_its_share_competes(
    preset: BudgetPreset, gone: list[int]
) -> None:
    # Six in the base, in the buffer three; six slots stay: 3 (50 %) or 4 (70 %) of them base.
    ledger = stream([0.1, 0.2, 0.21, 0.5, 0.6, 0.7, 0.3, 0.3, 0.9])
    ledger.promote(np.arange(6))
    if preset is BudgetPreset.LONG:
        ledger.set_scores(np.array([0.1, 0.4, 0.5, 0.5, 0.6, 0.7, 0.3, 0.3, 0.9]))
    assert AudioKvPolicy(NARROW, preset=preset).choose(ledger, 3).tolist() == gone


def test_the_reserve_outlasts_the_base() -> None:
    ledger = stream([0.1, 0.9, 0.9, 0.9])
    ledger.mark_segment_end(20)
    assert POLICY.choose(ledger, 2).tolist() == [1, 2]


@pytest.mark.parametrize(("share", "gone"), [(0.0, [0, 1, 2, 3]), (0.25, [0, 1, 4, 5])])
def test_a_language_keeps_its_share(share: float, gone: list[int]) -> None:
    scores = [0.1, 0.1, 0.2, 0.2, *[0.5] * 7, 0.9]
    ledger = stream(scores, "ddddeeeeeeee")
    assert AudioKvPolicy(NARROW, LanguageShares(share)).choose(ledger, 4).tolist() == gone


@pytest.mark.parametrize(("min_retention_ms", "gone"), [(0, [3, 4]), (60, [0, 1])])
def test_the_guards_are_those_given(min_retention_ms: int, gone: list[int]) -> None:
    ledger = stream([0.5, 0.5, 0.9, 0.1, 0.1, 0.9])
    policy = AudioKvPolicy(Guards(20, min_retention_ms, 0))
    if min_retention_ms:
        assert policy.choose(ledger, 2).tolist() == gone
    else:
        assert policy.choose(ledger, 2).tolist() == gone


def test_guards_give_way_in_their_documented_order() -> None:
    ledger = SlotLedger(n_sinks=2)
    ledger.append([SlotMarks(0, 0, is_prompt=True)] * 2)
    ledger.append([SlotMarks(at * 20, at * 20 + 20, is_boundary=at == 7) for at in range(12)])
    ledger.mark_segment_end(60)
    ledger.mark_segment_end(80)
    ledger.set_scores(np.array([0, 0, 0, 0, 9, 9, 9, 8, 3, 1, 2, 9, 9, 9.0]))
    policy = AudioKvPolicy(Guards(20, min_retention_ms=60, boundary_frames=2))
    order = []
    before: set[int] = set()
    for count in range(1, 15):
        gone = set(policy.choose(ledger, count).tolist())
        order += sorted(gone - before)
        before = gone
    segment_ends, near_boundary, young = [4, 5], [9, 10, 8], [11, 12, 13]
    free = [7, 6]
    sinks, prompt = [3, 2], [1, 0]
    assert order == [*free, *segment_ends, *near_boundary, *young, *sinks, *prompt]


@pytest.mark.parametrize("count", [-1, 4])
def test_counts_out_of_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"evict {count} of 3"):
        POLICY.choose(stream([0.1, 0.2, 0.3]), count)
