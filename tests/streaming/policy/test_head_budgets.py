from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.head_budgets import apportion, ranks, top_slots


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), min_size=1, max_size=12),
    st.integers(0, 400),
)
def test_shares_sum_exactly_under_caps(parts: list[tuple[float, int]], total: int) -> None:
    weights = np.array([weight for weight, _ in parts])
    caps = np.array([cap for _, cap in parts])
    shares = apportion(weights, total, caps)
    assert shares.sum() == min(total, caps.sum())
    assert ((shares >= 0) & (shares <= caps)).all()


def test_shares_follow_the_weights_and_remainders() -> None:
    free = np.full(3, 99)
    assert apportion(np.array([1.0, 2.0, 1.0]), 8, free).tolist() == [2, 4, 2]
    assert apportion(np.array([1.0, 1.0, 1.0]), 8, free).tolist() == [3, 3, 2]
    assert apportion(np.array([0.1, 0.5, 0.4]), 1, free).tolist() == [0, 1, 0]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12), st.integers(0, 400))
def test_no_share_is_a_whole_slot_off(weights: list[float], total: int) -> None:
    shares = apportion(np.array(weights), total, np.full(len(weights), 1000))
    exact = np.array(weights) * total / sum(weights)
    assert np.abs(shares - exact).max() < 1 + 1e-6


def test_what_a_cap_leaves_goes_to_the_others() -> None:
    assert apportion(np.array([8.0, 1.0, 1.0]), 10, np.array([2, 9, 9])).tolist() == [2, 4, 4]
    assert apportion(np.array([1.0, 0.0, 0.0]), 6, np.array([2, 9, 9])).tolist() == [2, 2, 2]


def test_any_shape_comes_back() -> None:
    shares = apportion(np.ones((2, 3)), 12, np.full((2, 3), 5))
    assert shares.tolist() == [[2, 2, 2], [2, 2, 2]]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 20), st.integers(0, 999))
def test_heads_keep_exactly_their_best(
    n_layers: int, n_heads: int, n_slots: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (n_layers, n_heads, n_slots)).astype(np.float64)
    is_held = rng.random(scores.shape) < 0.7
    budgets = rng.integers(0, is_held.sum(axis=-1) + 1)
    mask = top_slots(scores, budgets, is_held, np.zeros(n_slots, np.bool_))
    assert np.array_equal(mask.sum(axis=-1), budgets)
    assert not (mask & ~is_held).any()
    worst_kept = np.where(mask, scores, np.inf).min(axis=-1, initial=np.inf)
    best_lost = np.where(is_held & ~mask, scores, -np.inf).max(axis=-1, initial=-np.inf)
    assert (worst_kept >= best_lost).all()


def test_kept_slots_rank_first_and_the_newer_at_a_tie() -> None:
    scores = np.array([[[0.5, 0.5, 0.9, 0.1]]])
    is_held = np.array([[[True, True, True, True]]])
    nothing = np.zeros(4, np.bool_)
    assert ranks(scores, is_held, nothing)[0, 0].tolist() == [2, 1, 0, 3]
    kept = np.array([False, False, False, True])
    assert ranks(scores, is_held, kept)[0, 0].tolist() == [3, 2, 1, 0]
    held = np.array([[[True, True, False, True]]])
    assert ranks(scores, held, nothing)[0, 0].tolist() == [1, 0, 3, 2]


def test_kept_slots_enter_the_choice() -> None:
    scores = np.array([[[0.5, 0.4, 0.1]]])
    mask = top_slots(
        scores, np.array([[1]]), np.ones((1, 1, 3), np.bool_), np.array([False, False, True])
    )
    assert mask[0, 0].tolist() == [False, False, True]
