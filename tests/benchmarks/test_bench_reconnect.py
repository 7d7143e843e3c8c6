from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live_stream import LiveRun
from benchmarks.reconnect import (
    BACK_S,
    END_MARGIN_S,
    FIRST_CUT_S,
    as_json,
    cut_moments_s,
    words_of,
)
from tests.benchmarks.making import arrival


@given(
    n_cuts=st.integers(1, 12),
    cut_s=st.floats(0.1, 5.0),
    spare_s=st.floats(0.5, 60.0),
    seed=st.integers(0, 1_000),
)
def test_cuts_fit_and_leave_time_to_come_back(
    n_cuts: int, cut_s: float, spare_s: float, seed: int
) -> None:
    duration_s = FIRST_CUT_S + END_MARGIN_S + n_cuts * (cut_s + BACK_S) + spare_s
    moments = cut_moments_s(n_cuts, cut_s, duration_s, seed)
    assert len(moments) == n_cuts
    assert moments[0] >= FIRST_CUT_S
    assert moments[-1] + cut_s <= duration_s - END_MARGIN_S + 1e-6
    assert all(b - a >= cut_s + BACK_S - 1e-6 for a, b in pairwise(moments))
    assert moments == cut_moments_s(n_cuts, cut_s, duration_s, seed)


def test_cuts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SystemExit, match="10 cuts of 3 s"):
        cut_moments_s(10, 3.0, 60.0, seed=1)


def test_a_run_is_told_by_its_words_and_news() -> None:
    run = LiveRun(
        arrivals=[arrival(1, "a"), arrival(2, "a b", is_final=True)],
        notices=[(1.0, "connection_lost"), (2_001.0, "connection_back")],
    )
    assert words_of(run) == [("a", 0, 100), ("b", 100, 200)]
    told = as_json(run)
    assert told["text"] == "a b"
    assert told["notices"] == {"connection_lost": 1, "connection_back": 1}
    assert told["outages_s"] == [2.0]
    assert told["n_captions_out_of_order"] == 1  # the made captions all have number 1
