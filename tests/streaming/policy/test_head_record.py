from __future__ import annotations

import numpy as np
import pytest

from audiokv.streaming.policy.head_record import HeadRecord

FIRST = np.ones(3, np.bool_)


def observed(alpha: float = 0.5) -> HeadRecord:
    heads = HeadRecord(1, 2)
    heads.append(3)
    heads.observe(np.array([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]]), FIRST, alpha)
    return heads


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_importance_accumulates_per_head(alpha: float) -> None:
    heads = observed(alpha)
    heads.observe(np.ones((1, 2, 3)), ~FIRST, alpha)
    before = np.array([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]])
    assert heads.importance == pytest.approx(alpha + (1 - alpha) * before)


def test_what_a_head_dropped_stays_dropped() -> None:
    heads = observed()
    heads.hold_only(np.array([[[True, False, True], [True, False, False]]]))
    heads.hold_only(np.ones((1, 2, 3), np.bool_))
    assert heads.is_held.tolist() == [[[True, False, True], [True, False, False]]]
    assert heads.orphans().tolist() == [1]
    heads.keep(np.array([0, 2]))
    assert heads.is_held.tolist() == [[[True, True], [True, False]]]
    heads.append(1)
    assert heads.is_held[..., 2].all()
    assert heads.orphans().tolist() == []


def test_absorbed_slots_add_their_importance() -> None:
    heads = observed()
    heads.absorb(np.array([0, 0]), np.array([1, 2]))
    heads.keep(np.array([0]))
    assert heads.importance == pytest.approx(np.array([[[0.6], [1.5]]]))


@pytest.mark.parametrize(
    "weights", [np.zeros((1, 2, 2)), np.full((1, 2, 3), -1.0), np.full((1, 2, 3), np.nan)]
)
def test_weights_that_are_none_are_refused(weights: np.ndarray) -> None:
    with pytest.raises(ValueError, match="attention weights"):
        observed().observe(weights, FIRST, 0.3)


@pytest.mark.parametrize("shape", [(0, 1), (1, 0)])
def test_a_record_of_no_heads_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="hold nothing"):
        HeadRecord(*shape)


def test_it_may_be_empty_and_says_its_size() -> None:
    heads = HeadRecord(2, 3)
    heads.observe(np.empty((2, 3, 0)), np.empty(0, np.bool_), 0.3)
    assert heads.importance.shape == (2, 3, 0)
    assert heads.n_bytes == 2 * 3 * 64 * 9
