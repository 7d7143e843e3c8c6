"""Which slot spells which digit: the best CTC path through the known transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def spelling_slots(log_probabilities: NDArray[np.float32], digits: Sequence[int]) -> list[int]:
    """Return for each digit the first slot in which the best path spells it.

    Viterbi over blank, digit, blank, digit, …, blank.

    Args:
        log_probabilities: Shape (slots, digits + blank), the blank last.
        digits: What was said.

    Raises:
        ValueError: There are too few slots for the digits.
    """
    n_slots, n_labels = log_probabilities.shape
    if not digits:
        return []
    states = np.full(2 * len(digits) + 1, n_labels - 1)
    states[1::2] = digits
    may_skip = np.zeros(len(states), bool)
    may_skip[3::2] = states[3::2] != states[1:-2:2]
    scores = np.full(len(states), -np.inf)
    scores[:2] = log_probabilities[0, states[:2]]
    steps = np.zeros((n_slots, len(states)), np.int64)  # how many states back the best path was
    for slot in range(1, n_slots):
        one_back = np.concatenate([[-np.inf], scores[:-1]])
        two_back = np.concatenate([[-np.inf, -np.inf], scores[:-2]])
        choices = np.stack([scores, one_back, np.where(may_skip, two_back, -np.inf)])
        steps[slot] = choices.argmax(0)
        scores = choices.max(0) + log_probabilities[slot, states]
    state = len(states) - 1 if scores[-1] >= scores[-2] else len(states) - 2
    if not np.isfinite(scores[state]):
        raise ValueError(f"{n_slots} slots are too few to spell {len(digits)} digits.")
    first = [0] * len(digits)
    for slot in range(n_slots - 1, -1, -1):
        if state % 2:
            first[state // 2] = slot
        state -= steps[slot, state]
    return first
