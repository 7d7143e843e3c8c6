from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from audiokv.models.whisper.alignment import SLOT_MS, _median_along_time, token_starts_ms, warp

ROWS_AND_SLOTS = st.tuples(st.integers(1, 12), st.integers(1, 25))


def costs(shape: tuple[int, int]) -> st.SearchStrategy[np.ndarray]:
    # Few values that sum without rounding, so that both sides see the same ties, and many.
    return arrays.arrays(np.float32, shape, elements=st.integers(-2, 2).map(float))


def plain_warp(cost: np.ndarray) -> list[int]:
    """Dynamic time warping cell by cell, with the same preference among equals."""
    n, m = cost.shape
    total = [[float("inf")] * (m + 1) for _ in range(n + 1)]
    came_from: dict[tuple[int, int], tuple[int, int]] = {}
    total[0][0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            before = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
            best = min(before, key=lambda at: total[at[0]][at[1]])
            came_from[i, j] = best
            total[i][j] = float(cost[i - 1, j - 1]) + total[best[0]][best[1]]
    starts = [0] * n
    at = (n, m)
    while at in came_from:
        starts[at[0] - 1] = at[1] - 1
        at = came_from[at]
    return starts


@settings(deadline=None, max_examples=200)
@given(ROWS_AND_SLOTS.flatmap(costs))
def test_warping_is_that_of_the_plain_algorithm(cost: np.ndarray) -> None:
    assert warp(cost).tolist() == plain_warp(cost)


@settings(deadline=None)
@given(ROWS_AND_SLOTS.flatmap(costs))
def test_times_never_fall_and_stay_in_the_window(cost: np.ndarray) -> None:
    starts = token_starts_ms(cost[None])
    assert starts.shape == (cost.shape[0],)
    assert (np.diff(starts) >= 0).all()
    assert starts.min() >= 0
    assert starts.max() <= (cost.shape[1] - 1) * SLOT_MS


def spoken(starts_slots: list[int], n_slots: int, n_heads: int = 3) -> np.ndarray:
    """Attention of heads that follow time, with noise of their own."""
    generator = np.random.default_rng(0)
    ends = [*starts_slots[1:], n_slots]
    attention = generator.random((n_heads, len(starts_slots), n_slots)) * 0.2
    for row, (start, end) in enumerate(zip(starts_slots, ends, strict=True)):
        attention[:, row, start:end] += 1.0
    shares: np.ndarray = (attention / attention.sum(axis=-1, keepdims=True)).astype(np.float32)
    return shares


@pytest.mark.parametrize("starts", [[0, 12, 20, 35, 60, 61 + 9], [0, 40], [0, 9, 18, 27]])
def test_tokens_begin_where_their_attention_does(starts: list[int]) -> None:
    found = token_starts_ms(spoken(starts, n_slots=90)) / SLOT_MS
    assert np.abs(found - starts).max() <= 1


def test_one_stray_head_does_not_move_the_words() -> None:
    starts = [0, 12, 20, 35, 60, 70]
    attention = spoken(starts, n_slots=90, n_heads=4)
    attention[3] = np.random.default_rng(1).random(attention.shape[1:])
    assert np.abs(token_starts_ms(attention) / SLOT_MS - starts).max() <= 2


def test_a_single_outlying_slot_is_smoothed_away() -> None:
    attention = spoken([0, 30, 60], n_slots=90)
    attention[:, 2, 5] = attention.max() * 20
    assert np.abs(token_starts_ms(attention) / SLOT_MS - [0, 30, 60]).max() <= 1


def test_a_head_of_large_weights_counts_no_more_than_others() -> None:
    starts = [0, 30, 60]
    attention = spoken(starts, n_slots=90)
    misled = spoken([0, 10, 20], n_slots=90, n_heads=1) * 1000
    both = np.concatenate([attention, misled])
    assert np.abs(token_starts_ms(both) / SLOT_MS - starts).max() <= 1


def test_more_tokens_than_slots_still_align() -> None:
    starts = token_starts_ms(np.random.default_rng(0).random((2, 9, 4)).astype(np.float32))
    assert len(starts) == 9
    assert (np.diff(starts) >= 0).all()


@pytest.mark.parametrize("n_slots", [0, 1, 2, 3])
def test_next_to_no_audio_gives_times_too(n_slots: int) -> None:
    starts = token_starts_ms(np.ones((2, 4, n_slots), dtype=np.float32))
    assert starts.shape == (4,)
    assert starts.max() <= max(0, n_slots - 1) * SLOT_MS


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.just(2), st.integers(1, 3), st.integers(4, 30)),
        elements=st.floats(-100, 100, width=32),
    )
)
def test_the_median_is_taken_along_time(weights: np.ndarray) -> None:
    padded = np.pad(weights, ((0, 0), (0, 0), (3, 3)), mode="reflect")
    expected = [np.median(padded[..., i : i + 7], axis=-1) for i in range(weights.shape[-1])]
    assert np.array_equal(_median_along_time(weights), np.stack(expected, axis=-1))


@given(st.sets(st.integers(0, 29), min_size=1), st.integers(1, 6), st.integers(0, 9))
def test_slots_that_are_not_held_take_no_part(held: set[int], n_tokens: int, seed: int) -> None:
    slots = np.array(sorted(held), np.intp)
    attention = np.random.default_rng(seed).random((2, n_tokens, 30)).astype(np.float32)
    starts = token_starts_ms(attention, slots)
    dense = token_starts_ms(attention[..., slots]) // SLOT_MS
    assert starts.tolist() == (slots[dense] * SLOT_MS).tolist()
    everything = np.arange(30, dtype=np.intp)
    assert np.array_equal(token_starts_ms(attention, everything), token_starts_ms(attention))


def test_without_any_held_slot_all_tokens_start_with_the_window() -> None:
    nothing = np.zeros(0, np.intp)
    assert token_starts_ms(np.ones((2, 3, 5), np.float32), nothing).tolist() == [0, 0, 0]
