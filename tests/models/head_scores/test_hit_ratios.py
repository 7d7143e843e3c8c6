from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from audiokv.models.head_scores.hit_ratios import TOP_K, HitTally, hit_ratios, rank_correlation


@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 40), st.integers(0, 40))
def test_a_ratio_counts_the_top_positions_in_the_span(
    n_slots: int, top_k: int, first: int, length: int
) -> None:
    rng = np.random.default_rng(n_slots)
    attention = rng.permutation(n_slots).astype(np.float32)[None, None, None]
    n_top = min(top_k, n_slots)
    by_hand = sorted(range(n_slots), key=lambda slot: -attention[0, 0, 0, slot])[:n_top]
    n_hits = sum(first <= slot < first + length for slot in by_hand)
    ratio = hit_ratios(attention, first, first + length, top_k)
    assert ratio.shape == (1, 1, 1)
    assert ratio[0, 0, 0] == pytest.approx(n_hits / n_top)


def test_the_paper_counts_24_positions() -> None:
    attention = np.zeros((1, 2, 1, 200), np.float32)
    attention[0, 0, 0, 10:40] = np.linspace(1, 2, 30)
    attention[0, 1, 0, 150:] = 1.0  # behind the audio
    assert TOP_K == 24
    assert hit_ratios(attention, 16, 40)[0, :, 0].tolist() == [1.0, 0.0]
    assert hit_ratios(attention, 28, 40)[0, 0, 0] == 0.5


def test_every_head_and_step_is_judged_by_itself() -> None:
    attention = np.zeros((2, 3, 4, 8), np.float32)
    attention[1, 2, 3, 5] = 1.0
    ratios = hit_ratios(attention, 5, 6, top_k=1)
    assert ratios.shape == (2, 3, 4)
    assert ratios[1, 2, 3] == 1.0
    assert ratios[1, 2].sum() == 1.0


def test_scores_are_means_over_steps_not_words() -> None:
    tally = HitTally(1, 2)
    assert tally.scores.tolist() == [[0.0, 0.0]]
    tally.add(np.array([[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]]))
    other = HitTally(1, 2)
    other.add(np.array([[[0.0], [1.0]]]))
    tally.join(other)
    assert tally.n_steps == 4
    assert tally.scores.tolist() == [[0.75, 0.25]]


scores = arrays.arrays(np.float64, (2, 4), elements=st.integers(0, 9).map(float))


@given(scores, scores)
def test_rank_correlation_is_symmetric_and_bounded(one: np.ndarray, other: np.ndarray) -> None:
    correlation = rank_correlation(one, other)
    assert -1 - 1e-9 <= correlation <= 1 + 1e-9
    assert correlation == pytest.approx(rank_correlation(other, one))
    if np.ptp(one):
        assert rank_correlation(one, one**3 + 1) == pytest.approx(1)
        assert rank_correlation(one, -one) == pytest.approx(-1)
    else:
        assert correlation == 0


def test_rank_correlation_shares_ranks_among_equals() -> None:
    # By hand: ranks 0.5 0.5 2 3 and 0 1 2 3; Pearson of these.
    one, other = np.array([1.0, 1.0, 5.0, 9.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(one, other) == pytest.approx(0.9486833)
