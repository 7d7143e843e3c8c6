from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.language_shares import LanguageShares


def deferred(share: float, languages: list[int], n_keep: int) -> list[int]:
    order = np.arange(len(languages))
    numbers = np.array(languages, np.int16)
    return np.flatnonzero(LanguageShares(share).defer(order, numbers, n_keep)).tolist()


def test_a_language_within_its_share_is_deferred_best_slots_last() -> None:
    # Language 2 holds 4 and is guaranteed 2 of 10: its two first may go.
    assert deferred(0.2, [2, 2, 2, 2, *[1] * 10], 10) == [2, 3, 12, 13]
    assert deferred(0.3, [2, 2, 2, 2, *[1] * 10], 10) == [1, 2, 3, 11, 12, 13]
    assert deferred(0.0, [2, 2, 2, 2, *[1] * 10], 10) == []


def test_one_language_needs_no_share_and_unknown_has_none() -> None:
    assert deferred(0.5, [1] * 6, 4) == []
    assert deferred(0.5, [0, 0, 1, 1], 4) == []
    assert deferred(0.5, [0, 0, 1, 1, 2], 4) == [2, 3, 4]


def test_shares_beyond_the_whole_divide_it_evenly() -> None:
    assert deferred(0.9, [1, 1, 1, 2, 2, 2], 4) == [1, 2, 4, 5]


def test_guarded_slots_count_towards_the_share() -> None:
    languages = np.array([1, 1, 1, 2, 2, 2], np.int16)
    # Slots 3 and 4 are guarded, so not in the order; with them language 2 has its two.
    mask = LanguageShares(0.5).defer(np.array([5, 0, 1, 2]), languages, 4)
    assert mask.tolist() == [False, False, True, True]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.floats(0, 1), st.data())
def test_no_language_falls_below_its_share_while_others_can_give(
    languages: list[int], share: float, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(languages)))
    order = np.array(data.draw(st.permutations(range(len(languages)))))
    numbers = np.array(languages, np.int16)
    n_keep = len(languages) - count
    mask = LanguageShares(share).defer(order, numbers, n_keep)
    evicted = np.concatenate((order[~mask], order[mask]))[:count]
    known = np.setdiff1d(numbers, [0])
    if len(known) > 1:
        guaranteed = int(n_keep * min(share, 1 / len(known)))
        kept = np.delete(numbers, evicted)
        for number in known:
            had = int(np.count_nonzero(numbers == number))
            assert np.count_nonzero(kept == number) >= min(had, guaranteed)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="language share"):
        LanguageShares(share)
