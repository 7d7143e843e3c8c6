from __future__ import annotations

import pytest

from benchmarks.soak import Check, is_lag_steady, quarter_lags
from benchmarks.virtual_stream import Step


def steps(*lags_ms: float) -> list[Step]:
    return [Step(i, lag, lag) for i, lag in enumerate(lags_ms)]


def test_lags_are_told_by_quarter() -> None:
    assert quarter_lags(steps(1, 3, 5, 7, 9, 11, 13, 15)) == [2.0, 6.0, 10.0, 14.0]
    assert quarter_lags(steps(1)) == [1.0, 0.0, 0.0, 0.0]
    assert quarter_lags([]) == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("first", "last", "is_steady"), [(100, 90, True), (100, 175, True), (100, 176, False)]
)
def test_the_end_may_be_little_later_than_the_start(
    first: float,
    last: float,
    is_steady: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    assert is_lag_steady([first, 0.0, 0.0, last]) is is_steady


def test_a_check_is_told_in_full() -> None:
    assert Check("x", is_met=False, detail="3 words").as_json() == {
        "check": "x",
        "is_met": False,
        "detail": "3 words",
    }
