from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.audiokv_heads import AudioKvHeadsPolicy
from audiokv.streaming.policy.guards import Guards
from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.protocol import HeadwisePolicy
from audiokv.streaming.policy.smoothing import MedianTrendSmoother, NoSmoother, SpectralSmoother

if TYPE_CHECKING:
    from audiokv.streaming.policy.protocol import Smoother
    from tests.streaming.policy.conftest import LedgerBuilder

SHARED = AudioKvPolicy(Guards(20, min_retention_ms=0, boundary_frames=0))
EVEN = np.ones((1, 1))
SMOOTHERS: tuple[Smoother, ...] = (NoSmoother(), MedianTrendSmoother(), SpectralSmoother())


def stream(importance: list[list[float]], quiet: tuple[int, ...] = ()) -> SlotLedger:
    values = np.array(importance)[None]
    n_slots = values.shape[-1]
    ledger = SlotLedger(n_sinks=0, heads=HeadRecord(1, len(importance)))
    ledger.append(
        [
            SlotMarks(at * 20, at * 20 + 20, is_voice=at not in quiet, prior=1.0 + (at == 1))
            for at in range(n_slots)
        ]
    )
    assert ledger.heads is not None
    ledger.heads.observe(values, np.ones(n_slots, np.bool_), 0.3)
    return ledger


def kept(policy: AudioKvHeadsPolicy, ledger: SlotLedger, n_keep: int) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in policy.keep_mask(ledger, n_keep)[0]]


@given(st.integers(0, 60), st.integers(0, 10**6), st.floats(0, 1), st.data())
def test_the_total_is_exact_for_every_smoother(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, floor: float, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed, heads=(3, 2))
    assert ledger.heads is not None
    smoother = data.draw(st.sampled_from(SMOOTHERS))
    head_scores = np.random.default_rng(seed).random((3, 2))
    policy = AudioKvHeadsPolicy(SHARED, head_scores, smoother, floor)
    n_keep = data.draw(st.integers(0, n_slots))
    mask = policy.keep_mask(ledger, n_keep)
    assert mask.sum() == 6 * n_keep
    count = data.draw(st.integers(0, n_slots))
    assert np.array_equal(policy.choose(ledger, count), SHARED.choose(ledger, count))


@pytest.mark.parametrize(
    ("floor_share", "budgets"), [(0.0, [15, 5]), (0.5, [13, 7]), (1.0, [10, 10])]
)
def test_budgets_follow_the_head_scores_above_the_floor(
    floor_share: float, budgets: list[int]
) -> None:
    ledger = stream([[0.1] * 40] * 2)
    policy = AudioKvHeadsPolicy(SHARED, np.array([[0.75, 0.25]]), NoSmoother(), floor_share)
    assert policy.keep_mask(ledger, 10).sum(axis=-1).tolist() == [budgets]


def test_heads_without_scores_share_evenly() -> None:
    policy = AudioKvHeadsPolicy(SHARED, np.zeros((1, 2)), NoSmoother(), 0.0)
    assert policy.keep_mask(stream([[0.1] * 40] * 2), 10).sum(axis=-1).tolist() == [[10, 10]]


def test_guarded_then_uncommitted_then_committed() -> None:
    ledger = stream([[0.9, 0.8, 0.1, 0.2, 0.0]])
    ledger.commit_until(40)
    policy = AudioKvHeadsPolicy(SHARED, EVEN, NoSmoother())
    assert kept(policy, ledger, 1) == [[4]]
    assert kept(policy, ledger, 3) == [[2, 3, 4]]
    # Of the committed the second is better by its prior.
    assert kept(policy, ledger, 4) == [[1, 2, 3, 4]]


@pytest.mark.parametrize(("voice_weight", "expected"), [(0.0, [0, 4]), (0.5, [2, 4])])
def test_voice_counts_for_its_weight(voice_weight: float, expected: list[int]) -> None:
    ledger = stream([[0.5, 0.1, 0.4, 0.1, 0.0]], quiet=(0,))
    policy = AudioKvHeadsPolicy(SHARED, EVEN, NoSmoother(), voice_weight=voice_weight)
    assert kept(policy, ledger, 2) == [expected]


def test_the_smoother_runs_along_the_slots() -> None:
    ledger = stream([[0.0, 0.0, 0.9, 0.0, 0.0, 0.3, 0.3, 0.3, 0.3, 0.0]])
    spiky = AudioKvHeadsPolicy(SHARED, EVEN, NoSmoother())
    smooth = AudioKvHeadsPolicy(SHARED, EVEN, MedianTrendSmoother(3, 1.0))
    assert 2 in kept(spiky, ledger, 2)[0]
    assert 2 not in kept(smooth, ledger, 5)[0]


def test_parameters_and_records_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="floor"):
        AudioKvHeadsPolicy(SHARED, EVEN, NoSmoother(), floor_share=1.1)
    with pytest.raises(ValueError, match="at least 0"):
        AudioKvHeadsPolicy(SHARED, -EVEN, NoSmoother())
    with pytest.raises(ValueError, match="1 layers of 2 heads"):
        AudioKvHeadsPolicy(SHARED, EVEN, NoSmoother()).keep_mask(stream([[0.1]] * 2), 1)


def test_it_is_a_headwise_policy() -> None:
    assert isinstance(AudioKvHeadsPolicy(SHARED, EVEN, NoSmoother()), HeadwisePolicy)
    assert not isinstance(SHARED, HeadwisePolicy)
