from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.digits_alignment import spelling_slots

BLANK = 3


def log_probabilities(n_slots: int, seed: int) -> np.ndarray:
    raw = np.random.default_rng(seed).standard_normal((n_slots, BLANK + 1)) * 2
    table: np.ndarray = raw - np.log(np.exp(raw).sum(-1, keepdims=True))
    return table.astype(np.float32)


def best_by_trying(table: np.ndarray, digits: list[int]) -> float:
    """The best score over every way to cut the slots into blank and digit runs."""
    n_slots = len(table)
    best = -np.inf
    for edges in combinations(range(n_slots + 1), 2 * len(digits)):
        spans = list(zip(edges[::2], edges[1::2], strict=True))
        repeats = zip(digits, digits[1:], spans, spans[1:], strict=False)
        if any(a == b and one[1] == two[0] for a, b, one, two in repeats):
            continue
        labels = np.full(n_slots, BLANK)
        for digit, (begin, end) in zip(digits, spans, strict=True):
            labels[begin:end] = digit
        best = max(best, float(table[np.arange(n_slots), labels].sum()))
    # Neighbouring different digits may also touch, which spans of one shared edge cannot say.
    return best


def score_of(table: np.ndarray, digits: list[int], slots: list[int]) -> float:
    """The best score of a path that first spells each digit where `slots` says."""
    total = float(table[: slots[0], BLANK].sum())
    for at, (digit, begin) in enumerate(zip(digits, slots, strict=True)):
        end = slots[at + 1] if at + 1 < len(slots) else len(table)
        last = end if at + 1 == len(slots) or digits[at + 1] != digit else end - 1
        total += max(
            float(table[begin:cut, digit].sum() + table[cut:end, BLANK].sum())
            for cut in range(begin + 1, last + 1)
        )
    return total


@given(
    digits=st.lists(st.integers(0, BLANK - 1), min_size=1, max_size=2),
    n_slots=st.integers(5, 8),
    seed=st.integers(0, 500),
)
def test_no_other_path_is_better(digits: list[int], n_slots: int, seed: int) -> None:
    table = log_probabilities(n_slots, seed)
    slots = spelling_slots(table, digits)
    assert slots == sorted(set(slots))
    assert score_of(table, digits, slots) >= best_by_trying(table, digits) - 1e-4


def test_a_repeated_digit_needs_a_blank_between() -> None:
    table = np.full((3, BLANK + 1), -5.0, np.float32)
    table[:, 1] = 0.0
    assert spelling_slots(table, [1, 1]) == [0, 2]
    assert spelling_slots(table, [1]) == [0]


def test_the_transcript_is_spelled_where_it_is_likely() -> None:
    table = np.full((8, BLANK + 1), -9.0, np.float32)
    table[:, BLANK] = -0.1
    table[2, [0, BLANK]] = -0.1, -9.0
    table[5, [2, BLANK]] = -0.1, -9.0
    table[6, [0, BLANK]] = -0.1, -9.0
    assert spelling_slots(table, [0, 2, 0]) == [2, 5, 6]


def test_nothing_said_is_spelled_nowhere() -> None:
    assert spelling_slots(log_probabilities(4, 0), []) == []


def test_too_few_slots_are_refused() -> None:
    with pytest.raises(ValueError, match="2 slots are too few to spell 2 digits"):
        spelling_slots(log_probabilities(2, 0), [1, 1])
