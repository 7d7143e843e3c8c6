from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.guards import Guard, Guards
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.protocol import MergingPolicy

if TYPE_CHECKING:
    from tests.streaming.policy.conftest import LedgerBuilder

# Guards as narrow as they get, and too weak to bind.
FREE = Guards(20, min_retention_ms=0, boundary_frames=0, max_share=0.0)
POLICY = AudioKvPolicy(FREE)


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


def kept(policy: AudioKvPolicy, ledger: SlotLedger, n_keep: int) -> np.ndarray:
    gone = policy.choose(ledger, ledger.held - n_keep)
    return np.setdiff1d(np.arange(ledger.held), gone)


@given(st.integers(0, 80), st.integers(0, 10**6), st.data())
def test_binding_guards_survive(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed)
    memory_ms = data.draw(st.sampled_from([None, 1, 400]))
    guards = Guards(20, min_retention_ms=60, max_share=0.5)
    policy = AudioKvPolicy(guards, memory_ms=memory_ms)
    count = data.draw(st.integers(0, n_slots))
    gone = policy.choose(ledger, count)
    assert len(np.unique(gone)) == count
    bound = policy.guards.binding(ledger, n_slots - count)
    # Only a prompt longer than all that stays gives way, from its end.
    assert bound[gone].max(initial=0) in (Guard.NONE, Guard.PROMPT)
    if (bound[gone] == Guard.PROMPT).any():
        assert gone.tolist() == list(range(n_slots - count, n_slots))


@given(st.integers(0, 80), st.integers(0, 10**6), st.data())
def test_equal_ledgers_give_equal_choices_and_stay_unchanged(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, n_slots))
    ledger = build_ledger(n_slots, seed)
    first = POLICY.choose(ledger, count)
    assert np.array_equal(first, POLICY.choose(ledger, count))
    assert np.array_equal(first, POLICY.choose(build_ledger(n_slots, seed), count))


def test_open_words_stay_denser_than_committed_ones() -> None:
    ledger = stream([0.5] * 100)
    ledger.commit_until(1000)
    stays = kept(AudioKvPolicy(FREE, context_ms=0), ledger, 30)
    assert np.count_nonzero(stays < 50) == 5
    assert np.count_nonzero(stays >= 50) == 25


@pytest.mark.parametrize(("weight", "n_committed"), [(0.2, 5), (1.0, 15), (0.01, 0)])
def test_committed_audio_counts_for_its_weight(weight: float, n_committed: int) -> None:
    ledger = stream([0.5] * 100)
    ledger.commit_until(1000)
    policy = AudioKvPolicy(FREE, committed_weight=weight, context_ms=0)
    assert np.count_nonzero(kept(policy, ledger, 30) < 50) == n_committed


@pytest.mark.parametrize(
    ("context_ms", "weight", "n_context"), [(0, 0.7, 3.6), (400, 0.7, 10.4), (400, 0.35, 6.0)]
)
def test_the_last_committed_words_are_context(
    context_ms: int, weight: float, n_context: float
) -> None:
    ledger = stream([0.5] * 100)
    ledger.commit_until(1400)
    policy = AudioKvPolicy(FREE, context_ms=context_ms, context_weight=weight)
    stays = kept(policy, ledger, 40)
    n_between = np.count_nonzero((stays >= 50) & (stays < 70))
    assert n_between == pytest.approx(n_context, abs=1.0)


def test_the_context_counts_for_its_weight() -> None:
    n_context = {}
    for weight in (0.2, 0.9):
        ledger = stream([0.5] * 100)
        ledger.commit_until(1400)
        stays = kept(AudioKvPolicy(FREE, context_weight=weight), ledger, 40)
        n_context[weight] = int(np.count_nonzero((stays >= 20) & (stays < 70)))
    assert n_context[0.2] < n_context[0.9]


@pytest.mark.parametrize(
    ("memory_ms", "n_by_age"), [(None, [5, 5, 5]), (2000, [3, 5, 7]), (500, [0, 2, 13])]
)
def test_what_was_committed_long_ago_fades(memory_ms: int | None, n_by_age: list[int]) -> None:
    ledger = stream([0.5] * 200)
    ledger.commit_until(3000)  # three seconds, and one second of open words
    policy = AudioKvPolicy(FREE, context_ms=0, committed_weight=0.1, memory_ms=memory_ms)
    stays = kept(policy, ledger, 15 + 50)
    committed = [int(np.count_nonzero((stays >= at) & (stays < at + 50))) for at in (0, 50, 100)]
    assert committed == pytest.approx(n_by_age, abs=1)
    assert np.count_nonzero(stays >= 150) == 50


def test_a_memory_begins_before_the_context_and_never_comes_to_nothing() -> None:
    ledger = stream([0.5] * 200)
    ledger.commit_until(4000)
    context = AudioKvPolicy(FREE, context_ms=2000, memory_ms=40)
    assert np.count_nonzero(kept(context, ledger, 60) >= 100) >= 58
    forgetful = AudioKvPolicy(FREE, context_ms=0, memory_ms=1)
    stays = kept(forgetful, ledger, 150)  # more than is young: the old is as even as ever
    assert len(stays) == 150
    assert np.diff(stays).max() <= 3


@pytest.mark.parametrize(("power", "n_good"), [(0.0, 10), (0.5, 15), (1.0, 18)])
def test_scores_bend_the_density_by_their_power(power: float, n_good: int) -> None:
    ledger = stream([0.9] * 50 + [0.1] * 50)
    stays = kept(AudioKvPolicy(FREE, score_power=power), ledger, 20)
    assert np.count_nonzero(stays < 50) == n_good


def test_no_hole_opens_however_low_the_scores() -> None:
    ledger = stream([0.9] * 40 + [0.0] * 40 + [0.9] * 40)
    stays = kept(POLICY, ledger, 60)
    assert np.count_nonzero((stays >= 40) & (stays < 80)) > 0


@pytest.mark.parametrize(("share", "n_german"), [(0.0, 1), (0.25, 4), (0.5, 8)])
def test_a_language_keeps_its_share(share: float, n_german: int) -> None:
    ledger = stream([0.05] * 12 + [0.9] * 36, "d" * 12 + "e" * 36)
    stays = kept(AudioKvPolicy(FREE, LanguageShares(share)), ledger, 16)
    assert np.count_nonzero(stays < 12) == n_german


def test_the_guards_are_those_given() -> None:
    ledger = stream([0.9] * 90 + [0.001] * 10)
    guarded = AudioKvPolicy(Guards(20, min_retention_ms=200))
    assert kept(guarded, ledger, 40)[-10:].tolist() == list(range(90, 100))
    assert kept(POLICY, ledger, 40)[-10:].tolist() != list(range(90, 100))


def test_it_merges_as_much_as_it_says() -> None:
    assert isinstance(POLICY, MergingPolicy)
    assert AudioKvPolicy(FREE, max_merged_slots=3).max_merged_slots == 3


@pytest.mark.parametrize("count", [-1, 4])
def test_counts_out_of_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"evict {count} of 3"):
        POLICY.choose(stream([0.1, 0.2, 0.3]), count)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"committed_weight": 0.0}, "over 0"),
        ({"context_weight": -1.0}, "over 0"),
        ({"score_power": -0.1}, "at least 0"),
        ({"context_ms": -1}, "at least 0"),
        ({"memory_ms": 0}, "at least 1 ms"),
        ({"max_merged_slots": 0}, "at least 1"),
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AudioKvPolicy(FREE, **wrong)
