from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.attention_policies import SnapKvPolicy
from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.headwise_policies import AdaKvPolicy, PyramidKvPolicy
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks

if TYPE_CHECKING:
    from tests.streaming.policy.conftest import LedgerBuilder

POLICIES = (PyramidKvPolicy(), AdaKvPolicy())
Policy = PyramidKvPolicy | AdaKvPolicy


def stream(importance: np.ndarray) -> SlotLedger:
    n_layers, n_heads, n_slots = importance.shape
    ledger = SlotLedger(n_sinks=0, heads=HeadRecord(n_layers, n_heads))
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_slots)])
    assert ledger.heads is not None
    ledger.heads.observe(importance, np.ones(n_slots, np.bool_), 0.3)
    ledger.attention.observe(importance.mean(axis=(0, 1)), 0.3)
    return ledger


@given(st.integers(0, 60), st.integers(0, 10**6), st.sampled_from(POLICIES), st.data())
def test_the_total_is_exact_and_nothing_comes_back(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, policy: Policy, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed, heads=(3, 2))
    assert ledger.heads is not None
    for _ in range(3):
        n_keep = data.draw(st.integers(0, n_slots))
        held = ledger.heads.is_held.copy()
        mask = policy.keep_mask(ledger, n_keep)
        assert not (mask & ~held).any()
        assert mask.sum() == min(6 * n_keep, held.sum())
        ledger.heads.hold_only(mask)


@given(st.integers(4, 60), st.integers(0, 10**6), st.sampled_from(POLICIES), st.data())
def test_a_single_set_is_exact_too(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, policy: Policy, data: st.DataObject
) -> None:
    ledger = build_ledger(n_slots, seed, heads=(3, 2))
    count = data.draw(st.integers(0, n_slots))
    assert len(np.unique(policy.choose(ledger, count))) == count


@pytest.mark.parametrize(("beta", "budgets"), [(1.0, [20, 20, 20]), (20.0, [39, 20, 1])])
def test_pyramid_layers_fall_linearly(beta: float, budgets: list[int]) -> None:
    rng = np.random.default_rng(0)
    mask = PyramidKvPolicy(beta, window_slots=0).keep_mask(stream(rng.random((3, 2, 100))), 20)
    assert mask.sum(axis=-1).tolist() == [[budget] * 2 for budget in budgets]


def test_pyramid_layers_that_hold_less_leave_the_rest_to_others() -> None:
    rng = np.random.default_rng(0)
    mask = PyramidKvPolicy().keep_mask(stream(rng.random((3, 1, 30))), 20)
    assert mask.sum(axis=-1)[0, 0] == 30
    assert mask.sum() == 60


@pytest.mark.parametrize(("floor_share", "poor_head"), [(0.2, 4), (0.5, 10), (1.0, 20)])
def test_ada_heads_compete_above_the_floor(floor_share: float, poor_head: int) -> None:
    importance = np.stack([np.full(100, 1.0), np.full(100, 0.01)])[None]
    mask = AdaKvPolicy(floor_share, window_slots=0).keep_mask(stream(importance), 20)
    assert mask.sum(axis=-1).tolist() == [[40 - poor_head, poor_head]]


def test_ada_layers_are_alike() -> None:
    importance = np.stack([np.full((2, 50), 1.0), np.full((2, 50), 0.01)])
    mask = AdaKvPolicy().keep_mask(stream(importance), 10)
    assert mask.sum(axis=(1, 2)).tolist() == [20, 20]


@pytest.mark.parametrize("kind", [PyramidKvPolicy, AdaKvPolicy])
@pytest.mark.parametrize("window_slots", [0, 3])
def test_every_head_keeps_the_window(
    kind: type[PyramidKvPolicy | AdaKvPolicy], window_slots: int
) -> None:
    importance = np.tile(np.linspace(1.0, 0.0, 40), (1, 2, 1))
    mask = kind(window_slots=window_slots, kernel_slots=1).keep_mask(stream(importance), 16)
    assert mask[..., 20:].sum(axis=-1).tolist() == [[window_slots] * 2]


@pytest.mark.parametrize("kind", [PyramidKvPolicy, AdaKvPolicy])
def test_scores_are_pooled(kind: type[PyramidKvPolicy | AdaKvPolicy]) -> None:
    importance = np.array([[[0.0, 0.9, 0.0, 0.4, 0.4, 0.0]]])
    plain = kind(window_slots=0, kernel_slots=1).keep_mask(stream(importance), 1)
    pooled = kind(window_slots=0, kernel_slots=3).keep_mask(stream(importance), 1)
    assert np.flatnonzero(plain[0, 0]).tolist() == [1]
    assert np.flatnonzero(pooled[0, 0]).tolist() != [1]


@pytest.mark.parametrize("kind", [PyramidKvPolicy, AdaKvPolicy])
def test_one_set_drops_what_the_fewest_heads_want(
    kind: type[PyramidKvPolicy | AdaKvPolicy],
) -> None:
    importance = np.zeros((1, 2, 12))
    importance[0, :, 4:8] = 1.0  # wanted by both
    importance[0, 0, :4] = 0.5  # by one; the other takes the newest of what is worth nothing
    gone = kind(window_slots=0, kernel_slots=1).choose(stream(importance), 6)
    assert gone.tolist() == [0, 1, 8, 9, 10, 11]


@pytest.mark.parametrize("policy", POLICIES)
def test_without_a_record_per_head_it_is_snapkv(policy: Policy) -> None:
    ledger = SlotLedger()
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(40)])
    ledger.attention.observe(np.random.default_rng(0).random(40), 0.3)
    assert np.array_equal(policy.choose(ledger, 20), SnapKvPolicy().choose(ledger, 20))
    with pytest.raises(ValueError, match="no record per head"):
        policy.keep_mask(ledger, 20)


@pytest.mark.parametrize("policy", POLICIES)
def test_counts_out_of_range_are_refused(policy: Policy) -> None:
    ledger = stream(np.ones((1, 1, 5)))
    for n_keep in (-1, 6):
        with pytest.raises(ValueError, match="cannot keep"):
            policy.keep_mask(ledger, n_keep)
        with pytest.raises(ValueError, match="cannot evict"):
            policy.choose(ledger, 5 - n_keep)


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="beta"):
        PyramidKvPolicy(beta=0.5)
    with pytest.raises(ValueError, match="floor"):
        AdaKvPolicy(floor_share=1.5)
