from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.language_shares import LanguageShares


def quotas(share: float, languages: list[int], chosen: list[int]) -> dict[int, int]:
    stays = np.zeros(len(languages), np.bool_)
    stays[chosen] = True
    return LanguageShares(share).quotas(np.array(languages, np.int16), stays)


def test_a_language_below_its_share_is_raised_to_it() -> None:
    languages = [2, 2, 2, 2, *[1] * 10]
    assert quotas(0.2, languages, list(range(4, 14))) == {1: 8, 2: 2}
    assert quotas(0.3, languages, list(range(4, 14))) == {1: 7, 2: 3}
    assert quotas(0.0, languages, list(range(4, 14))) == {}


def test_a_choice_that_gives_all_their_share_stands() -> None:
    assert quotas(0.2, [2, 2, 1, 1, 1, 1], [0, 2, 3, 4, 5]) == {}


def test_one_language_needs_no_share_and_unknown_has_none() -> None:
    assert quotas(0.5, [1] * 6, [0, 1]) == {}
    assert quotas(0.5, [0, 0, 1, 1], [0, 1]) == {}
    assert quotas(0.5, [0, 0, 1, 1, 2, 2], [0, 1, 2, 3]) == {0: 0, 1: 2, 2: 2}


def test_shares_beyond_the_whole_divide_it_evenly() -> None:
    assert quotas(0.9, [1, 1, 1, 2, 2, 2], [0, 1, 2, 3]) == {1: 2, 2: 2}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.floats(0, 1), st.data())
def test_the_total_stays_and_no_language_falls_below_its_share(
    languages: list[int], share: float, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(languages) - 1)))
    numbers = np.array(languages, np.int16)
    result = quotas(share, languages, sorted(chosen))
    known = np.setdiff1d(numbers, [0])
    if not result:
        result = {int(n): sum(languages[at] == n for at in chosen) for n in set(languages)}
    assert sum(result.values()) == len(chosen)
    for number, quota in result.items():
        held = languages.count(number)
        assert 0 <= quota <= held
        if number and len(known) > 1:
            assert quota >= min(held, int(len(chosen) * min(share, 1 / len(known))))


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="language share"):
        LanguageShares(share)
