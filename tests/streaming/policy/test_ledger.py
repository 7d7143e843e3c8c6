from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Keeping, Pool, Reason, SlotMarks

if TYPE_CHECKING:
    from tests.streaming.policy.conftest import LedgerBuilder

NAMES = (
    "start_ms",
    "end_ms",
    "is_voice",
    "is_boundary",
    "is_committed",
    "speaker",
    "language",
    "pool",
    "keeping",
    "multiplicity",
    "prior",
    "score",
)


def quiet(*starts_ms: int, is_voice: bool = False, is_boundary: bool = False) -> list[SlotMarks]:
    return [
        SlotMarks(at_ms, at_ms + 20, is_voice=is_voice, is_boundary=is_boundary)
        for at_ms in starts_ms
    ]


def test_every_mark_is_recorded() -> None:
    ledger = SlotLedger(n_sinks=0)
    ledger.append(
        [
            SlotMarks(0, 20, speaker="ann", language="en", prior=1.5),
            SlotMarks(20, 40, is_voice=False, is_boundary=True, speaker="bob"),
        ]
    )
    assert ledger.start_ms.tolist() == [0, 20]
    assert ledger.end_ms.tolist() == [20, 40]
    assert ledger.is_voice.tolist() == [True, False]
    assert ledger.is_boundary.tolist() == [False, True]
    assert [ledger.speakers.name(number) for number in ledger.speaker] == ["ann", "bob"]
    assert [ledger.languages.name(number) for number in ledger.language] == ["en", None]
    assert ledger.pool.tolist() == [Pool.BUFFER, Pool.BUFFER]
    assert ledger.is_committed.tolist() == [False, False]
    assert ledger.multiplicity.tolist() == [1, 1]
    assert ledger.prior.tolist() == [1.5, 1.0]
    assert ledger.score.tolist() == [0.0, 0.0]
    assert ledger.now_ms == 40


def test_prompt_and_sinks_enter_the_reserve() -> None:
    ledger = SlotLedger(n_sinks=2)
    ledger.append([SlotMarks(0, 0, is_prompt=True), *quiet(0, 20, 40)])
    assert ledger.keeping.tolist() == [Keeping.PROMPT, Keeping.SINK, Keeping.SINK, Keeping.NONE]
    assert ledger.pool.tolist() == [Pool.RESERVE] * 3 + [Pool.BUFFER]


def test_a_negative_number_of_sinks_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 sinks"):
        SlotLedger(n_sinks=-1)


def test_slots_out_of_order_change_nothing() -> None:
    ledger = SlotLedger()
    ledger.append(quiet(40))
    with pytest.raises(ValueError, match="after a later one"):
        ledger.append(quiet(20))
    assert ledger.seen == 1
    assert SlotLedger().now_ms == 0


def test_commitments_go_by_time_and_stay() -> None:
    ledger = SlotLedger()
    ledger.append(quiet(0, 20, 40))
    ledger.commit_until(59)
    assert ledger.is_committed.tolist() == [True, True, False]
    ledger.commit_until(0)
    assert ledger.is_committed.tolist() == [True, True, False]


def test_the_last_slot_of_a_segment_is_guarded_until_released() -> None:
    ledger = SlotLedger(n_sinks=1)
    ledger.append([*quiet(0, 20, 40), SlotMarks(60, 60, is_prompt=True)])
    ledger.mark_segment_end(0)
    assert ledger.keeping.tolist() == [Keeping.SINK, 0, 0, Keeping.PROMPT]
    ledger.mark_segment_end(90)
    assert ledger.keeping.tolist() == [Keeping.SINK, 0, Keeping.SEGMENT_END, Keeping.PROMPT]
    assert ledger.pool[2] == Pool.RESERVE
    ledger.mark_segment_end(15)
    assert ledger.keeping[0] == Keeping.SINK
    ledger.release_segment_ends(np.arange(4))
    assert ledger.keeping.tolist() == [Keeping.SINK, 0, 0, Keeping.PROMPT]
    assert ledger.pool[2] == Pool.BASE


def test_promotion_moves_to_the_base_pool() -> None:
    ledger = SlotLedger(n_sinks=0)
    ledger.append(quiet(0, 20))
    ledger.promote(np.array([1]))
    assert ledger.pool.tolist() == [Pool.BUFFER, Pool.BASE]


def test_scores_are_set_and_rows_read_only() -> None:
    ledger = SlotLedger()
    ledger.append(quiet(0, 20))
    ledger.set_scores(np.array([0.1, 0.2]))
    assert ledger.score.tolist() == [0.1, 0.2]
    for name in NAMES:
        assert not getattr(ledger, name).flags.writeable


@given(st.integers(0, 60), st.integers(0, 10**6), st.data())
def test_eviction_keeps_the_rest_as_it_was_and_counts(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed, heads=(2, 2))
    assert ledger.heads is not None
    gone = data.draw(st.sets(st.integers(0, n_slots - 1)) if n_slots else st.just(set()))
    reason = data.draw(st.sampled_from(Reason))
    kept = np.setdiff1d(np.arange(n_slots), list(gone)).astype(np.intp)
    before = {name: getattr(ledger, name)[kept].copy() for name in NAMES}
    importance = ledger.attention.importance[kept].copy()
    by_head = ledger.heads.importance[..., kept].copy()
    pools = np.bincount(ledger.pool[list(gone)] if gone else [], minlength=3)
    answer = ledger.evict(np.array(list(gone), np.intp), reason)
    assert np.array_equal(answer, kept)
    for name, expected in before.items():
        assert np.array_equal(getattr(ledger, name), expected)
    assert np.array_equal(ledger.attention.importance, importance)
    assert np.array_equal(ledger.heads.importance, by_head)
    counts = ledger.counts()
    assert (counts.seen, counts.held) == (n_slots, n_slots - len(gone))
    assert sum(counts.held_by_pool.values()) == counts.held
    assert {pool: counts.evicted[reason, pool] for pool in Pool} == {
        pool: pools[pool] for pool in Pool
    }
    assert sum(counts.evicted.values()) == len(gone)


@pytest.mark.parametrize("row", [-1, 2])
def test_rows_that_are_not_held_are_refused(row: int) -> None:
    ledger = SlotLedger()
    ledger.append(quiet(0, 20))
    with pytest.raises(IndexError):
        ledger.evict(np.array([row]), Reason.FORCED)
    assert ledger.held == 2


def test_adjoining_silence_shares_a_slot() -> None:
    ledger = SlotLedger(n_sinks=1, heads=HeadRecord(1, 1))
    ledger.append(quiet(0, 20, 40, 60))  # the first is a sink
    ledger.append(quiet(80, is_voice=True))
    ledger.append(quiet(100, 140, 160))  # a gap after the first
    ledger.append(quiet(180, is_boundary=True))
    ledger.append(quiet(200, 220))  # the last is too new
    ledger.attention.observe(np.arange(11.0), 0.3)
    assert ledger.heads is not None
    ledger.heads.observe(np.ones((1, 1, 11)), np.ones(11, np.bool_), 0.3)
    ledger.set_scores(np.arange(11.0))
    ledger.commit_until(80)
    kept = ledger.share_silence(until_ms=220)
    assert kept.tolist() == [0, 1, 4, 5, 6, 8, 9, 10]
    assert ledger.multiplicity.tolist() == [1, 3, 1, 1, 2, 1, 1, 1]
    assert ledger.end_ms.tolist() == [20, 80, 100, 120, 180, 200, 220, 240]
    assert ledger.score.tolist() == [0, 3, 4, 5, 7, 8, 9, 10]
    assert ledger.attention.importance.tolist() == [0, 6, 4, 5, 13, 8, 9, 10]
    assert ledger.heads.importance[0, 0].tolist() == [1, 3, 1, 1, 2, 1, 1, 1]
    assert ledger.is_committed.tolist() == [True, True] + [False] * 6
    assert ledger.counts().evicted[Reason.SHARED, Pool.BUFFER] == 3


def test_silence_joins_an_already_shared_slot_and_nothing_joins_voice() -> None:
    ledger = SlotLedger(n_sinks=0)
    for at_ms in range(0, 100, 20):
        ledger.append(quiet(at_ms))
        ledger.share_silence(until_ms=at_ms + 20)
    assert ledger.multiplicity.tolist() == [5]
    assert (ledger.start_ms[0], ledger.end_ms[0]) == (0, 100)
    ledger.append(quiet(100, 120, is_voice=True))
    assert ledger.share_silence(until_ms=500).tolist() == [0, 1, 2]


def test_a_run_counts_as_committed_only_as_a_whole() -> None:
    ledger = SlotLedger(n_sinks=0)
    ledger.append(quiet(0, 20))
    ledger.commit_until(20)
    ledger.share_silence(until_ms=40)
    assert ledger.is_committed.tolist() == [False]


@given(st.integers(0, 60), st.integers(0, 10**6))
def test_sharing_conserves_slots_and_order(
    build_ledger: LedgerBuilder, n_slots: int, seed: int
) -> None:
    ledger = build_ledger(n_slots, seed)
    attention = float(ledger.attention.importance.sum())
    voiced = int(ledger.is_voice.sum())
    ledger.share_silence(until_ms=ledger.now_ms)
    assert int(ledger.multiplicity.sum()) == n_slots
    assert int(ledger.is_voice.sum()) == voiced
    assert float(ledger.attention.importance.sum()) == pytest.approx(attention)
    assert (np.diff(ledger.start_ms) >= 0).all()
    assert (np.diff(ledger.end_ms) >= 0).all()


def test_rows_before_a_time_leave_out_the_prompt() -> None:
    ledger = SlotLedger()
    ledger.append([SlotMarks(0, 0, is_prompt=True), *quiet(0, 20, 40)])
    assert ledger.rows_before(40).tolist() == [1, 2]


def test_bytes_count_every_column() -> None:
    plain, headed = SlotLedger(), SlotLedger(heads=HeadRecord(2, 4))
    assert headed.heads is not None
    assert headed.n_bytes == plain.n_bytes + headed.heads.n_bytes
    assert plain.n_bytes > plain.attention.n_bytes
