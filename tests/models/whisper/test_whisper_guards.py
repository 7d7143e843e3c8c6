from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.whisper.guards import is_unspoken, loop_start, n_spoken, rewind_start
from audiokv.streaming.captions import Word

TOKENS = st.lists(st.integers(0, 3), max_size=40)


def paced(n: int, token_ms: int) -> list[int]:
    return [i * token_ms for i in range(n + 1)]


@pytest.mark.parametrize(
    ("no_speech", "log_probabilities", "expected"),
    [
        (0.0, [], True),
        (0.9, [-0.1, -0.3], False),
        (0.9, [-2.0, -1.0], True),
        (0.3, [-2.0, -1.0], False),
    ],
)
def test_text_is_unspoken_when_silent_and_improbable(
    *, no_speech: float, log_probabilities: list[float], expected: bool
) -> None:
    assert is_unspoken(no_speech, log_probabilities) is expected


@pytest.mark.parametrize(
    ("tokens", "token_ms"),
    [
        ([5] * 3, 250),  # "no no no"
        ([5] * 12, 180),  # a child that says one word over and over
        ([1, 2] * 6, 150),  # "bye-bye, bye-bye, …"
        ([7, 7, 7, 2, 7, 7, 7, 2, 7, 7, 7, 2], 200),  # a telephone number
        ([3, 4, 5, 6, 7] * 4, 60),  # a refrain, spoken fast
    ],
)
def test_true_repetitions_survive(tokens: list[int], token_ms: int) -> None:
    assert loop_start(tokens, paced(len(tokens), token_ms)) == len(tokens)


@pytest.mark.parametrize("period", [1, 2, 5, 16])
@pytest.mark.parametrize("n_before", [0, 4])
def test_a_loop_is_cut_after_its_first_round(period: int, n_before: int) -> None:
    spoken = list(range(100, 100 + n_before))
    phrase = list(range(period))
    tokens = [*spoken, *phrase * 6]
    starts = [*paced(n_before + period, 200)]
    starts += [starts[-1] + 20 * (i + 1) for i in range(len(tokens) - len(starts) + 1)]
    assert loop_start(tokens, starts) == n_before + period


def test_two_rounds_are_not_yet_a_loop() -> None:
    assert loop_start([1, 2, 3] * 2, paced(6, 10)) == 6


def test_a_loop_after_true_repetition_is_cut() -> None:
    tokens = [1] * 40
    starts = [*paced(4, 250), *(1000 + 2 * i for i in range(36))]
    assert loop_start(tokens, starts) < 40


@given(TOKENS)
def test_speech_at_a_human_pace_is_never_cut(tokens: list[int]) -> None:
    assert loop_start(tokens, paced(len(tokens), 60)) == len(tokens)


@given(TOKENS, st.integers(0, 60))
def test_what_stays_begins_with_one_round(tokens: list[int], token_ms: int) -> None:
    n_kept = loop_start(tokens, paced(len(tokens), token_ms))
    assert 0 <= n_kept <= len(tokens)
    if tokens:
        assert n_kept > 0
    if n_kept < len(tokens):  # a phrase of the kept part goes on right after it, twice or more
        assert any(
            tokens[n_kept - p : n_kept] * 2 == tokens[n_kept : n_kept + 2 * p]
            for p in range(1, n_kept + 1)
        )


def looking(*slots: int, n_slots: int = 200, n_heads: int = 2) -> np.ndarray:
    """Attention of tokens that each look at one place; the row of the end looks at the last."""
    attention = np.full((n_heads, len(slots) + 1, n_slots), 1e-4, dtype=np.float32)
    for row, slot in enumerate([*slots, n_slots - 1]):
        attention[:, row, slot] = 1.0
    return attention


def test_attention_that_moves_on_is_left_alone() -> None:
    assert rewind_start(looking(5, 10, 40, 40, 90, 150), n_forced=0) == 6


def test_two_tokens_that_look_back_are_a_rewind() -> None:
    assert rewind_start(looking(5, 40, 90, 150, 10, 20, 30), n_forced=0) == 4


def test_one_token_may_look_back() -> None:
    assert rewind_start(looking(5, 40, 90, 10, 150, 160), n_forced=0) == 6


def test_a_small_step_back_is_none() -> None:
    assert rewind_start(looking(5, 40, 90, 70, 68, 100), n_forced=0) == 6


def test_committed_tokens_are_never_counted() -> None:
    attention = looking(5, 150, 10, 20, 160, 170)
    assert rewind_start(attention, n_forced=0) == 2
    assert rewind_start(attention, n_forced=4) == 2  # the two new ones, which move on


def test_a_jump_back_behind_the_committed_text_is_cut_at_once() -> None:
    assert rewind_start(looking(5, 60, 150, 10, 20), n_forced=3) == 0


@pytest.mark.parametrize("n_forced", [0, 3])
def test_no_new_tokens_leave_nothing_to_cut(n_forced: int) -> None:
    assert rewind_start(looking(*range(n_forced)), n_forced) == 0


@given(st.lists(st.integers(0, 199), max_size=20).map(sorted), st.integers(0, 20))
def test_monotone_attention_is_never_a_rewind(slots: list[int], n_forced: int) -> None:
    n_forced = min(n_forced, len(slots))
    assert rewind_start(looking(*slots), n_forced) == len(slots) - n_forced


def test_words_without_time_at_the_end_are_not_spoken() -> None:
    def word(start_ms: int, end_ms: int) -> Word:
        return Word("w", start_ms, end_ms, 0.5)

    assert n_spoken([]) == 0
    assert n_spoken([word(0, 300), word(300, 340)]) == 2
    assert n_spoken([word(0, 300), word(300, 320), word(320, 320)]) == 1
    # Inside a sentence the alignment may squeeze a short word that was said.
    assert n_spoken([word(0, 300), word(300, 300), word(300, 500)]) == 3
