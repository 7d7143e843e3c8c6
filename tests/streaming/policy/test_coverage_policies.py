from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.coverage_policies import (
    FullPolicy,
    RandomPolicy,
    SinksUniformPolicy,
    UniformPolicy,
)
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Keeping, Reason, SlotMarks


def stream(n_audio: int, n_sinks: int = 4, n_prompt: int = 0) -> SlotLedger:
    ledger = SlotLedger(n_sinks=n_sinks)
    ledger.append([SlotMarks(0, 0, is_prompt=True)] * n_prompt)
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_audio)])
    return ledger


def test_full_never_evicts_but_checks() -> None:
    assert len(FullPolicy().choose(stream(5), 3)) == 0
    with pytest.raises(ValueError, match="evict 6 of 5"):
        FullPolicy().choose(stream(5), 6)


def test_random_depends_on_seed_and_stream_and_spares_the_prompt() -> None:
    ledger = stream(50, n_prompt=2)
    chosen = RandomPolicy(seed=1).choose(ledger, 20)
    assert np.array_equal(chosen, RandomPolicy(seed=1).choose(ledger, 20))
    assert not np.array_equal(chosen, RandomPolicy(seed=2).choose(ledger, 20))
    assert chosen.min() >= 2
    later = stream(51, n_prompt=2)
    later.evict(np.array([2]), Reason.FORCED)
    assert not np.array_equal(chosen, RandomPolicy(seed=1).choose(later, 20))
    everything_but_one = RandomPolicy().choose(ledger, 51)
    assert everything_but_one[1:].tolist() == list(range(2, 52))


@pytest.mark.parametrize(("n_slots", "n_keep"), [(100, 50), (100, 25), (1500, 600), (90, 30)])
def test_uniform_keeps_a_stride_on_unbroken_audio(n_slots: int, n_keep: int) -> None:
    gone = UniformPolicy().choose(stream(n_slots), n_slots - n_keep)
    kept = np.setdiff1d(np.arange(n_slots), gone)
    gaps = np.diff(kept)
    assert kept[0] == 0
    assert gaps.max() - gaps.min() <= 1


def test_uniform_stays_uniform_through_a_long_stream() -> None:
    ledger = stream(200)
    for step in range(200, 4000, 10):
        ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(step, step + 10)])
        ledger.evict(UniformPolicy().choose(ledger, ledger.held - 200), Reason.FORCED)
    in_eighths = np.histogram(ledger.start_ms, bins=8)[0]
    assert in_eighths.min() >= 0.6 * 200 / 8
    assert in_eighths.max() <= 1.6 * 200 / 8


@given(st.integers(1, 80), st.integers(0, 10), st.data())
def test_uniform_keeps_exactly_so_many_even_of_slots_at_one_time(
    n_slots: int, span: int, data: st.DataObject
) -> None:
    times = sorted(data.draw(st.lists(st.integers(0, span), min_size=n_slots, max_size=n_slots)))
    ledger = SlotLedger()
    ledger.append([SlotMarks(at, at) for at in times])
    count = data.draw(st.integers(0, n_slots))
    assert len(np.unique(UniformPolicy().choose(ledger, count))) == count


def test_uniform_evicts_the_prompt_only_when_nothing_else_is_left() -> None:
    ledger = stream(6, n_prompt=2)
    assert UniformPolicy().choose(ledger, 6).tolist() == [2, 3, 4, 5, 6, 7]
    assert UniformPolicy().choose(ledger, 7).tolist() == [0, 2, 3, 4, 5, 6, 7]


def test_sinks_and_uniform_differ_by_the_sinks() -> None:
    ledger = stream(100, n_sinks=6)
    kept = np.setdiff1d(np.arange(100), SinksUniformPolicy().choose(ledger, 80))
    assert kept[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.ptp(np.diff(kept[6:])) <= 1
    plain = np.setdiff1d(np.arange(100), UniformPolicy().choose(ledger, 80))
    assert plain[1] == 5
    assert np.count_nonzero(ledger.keeping == Keeping.SINK) == 6


def test_an_empty_ledger_has_nothing_to_give() -> None:
    for policy in (FullPolicy(), RandomPolicy(), UniformPolicy(), SinksUniformPolicy()):
        assert len(policy.choose(SlotLedger(), 0)) == 0
