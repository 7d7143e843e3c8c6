from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.weighted_cover import weighted_cover


def cover(weights: list[float], n_keep: int, starts: list[int] | None = None) -> list[int]:
    start_ms = np.array(range(len(weights)) if starts is None else starts) * 20
    mask = weighted_cover(start_ms, start_ms + 20, np.array(weights), n_keep)
    return np.flatnonzero(mask).tolist()


@given(st.data(), st.lists(st.floats(1e-3, 1.0), max_size=60))
def test_exactly_as_many_stay_as_asked(data: st.DataObject, weights: list[float]) -> None:
    n_keep = data.draw(st.integers(0, len(weights)))
    gaps = data.draw(
        st.lists(st.integers(1, 9), min_size=len(weights), max_size=len(weights)), label="gaps"
    )
    starts = np.cumsum(gaps).tolist()
    assert len(cover(weights, n_keep, starts)) == n_keep


@given(st.integers(1, 60), st.integers(1, 60))
def test_even_weights_leave_even_gaps(n_slots: int, n_keep: int) -> None:
    kept = cover([0.3] * n_slots, n_keep)
    gaps = np.diff(kept)
    assert len(kept) == min(n_slots, n_keep)
    assert gaps.max(initial=1) - gaps.min(initial=n_slots) <= 1


def test_density_follows_the_weights() -> None:
    kept = np.array(cover([0.2] * 50 + [0.8] * 50, 25))
    assert np.count_nonzero(kept < 50) == 5
    assert np.count_nonzero(kept >= 50) == 20


def test_what_a_dense_stretch_cannot_take_goes_to_the_rest() -> None:
    kept = np.array(cover([0.01] * 50 + [1.0] * 10, 30))
    assert np.count_nonzero(kept >= 50) == 10
    assert np.count_nonzero(kept < 50) == 20


def test_thinning_again_and_again_stays_even_in_time() -> None:
    starts = list(range(40))
    for _ in range(200):
        starts.append(starts[-1] + 1)
        starts = [starts[at] for at in cover([1.0] * len(starts), 40, starts)]
    gaps = np.diff(starts)
    # A new slot may only take the place of a neighbour, so gaps vary, but no hole opens.
    assert gaps.max() <= 4 * np.median(gaps)


@pytest.mark.parametrize(("n_keep", "kept"), [(0, []), (-1, []), (3, [0, 1, 2]), (9, [0, 1, 2])])
def test_nothing_and_everything(n_keep: int, kept: list[int]) -> None:
    assert cover([1.0, 0.1, 1.0], n_keep) == kept


def test_rounding_loses_no_slot() -> None:
    for n_keep in range(1, 300):
        assert len(cover([0.1] * 300, n_keep)) == n_keep
