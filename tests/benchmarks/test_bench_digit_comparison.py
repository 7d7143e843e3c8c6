from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.digit_comparison import (
    GROUPS,
    Pair,
    comparison_as_json,
    comparison_verdicts,
    hear_both_ways,
    live_over_offline,
    strings_of_group,
)
from benchmarks.virtual_stream import VirtualRun
from tests.benchmarks.making import arrival
from tools.digits_data import WORDS, DigitBank, Recording

if TYPE_CHECKING:
    from benchmarks.recordings import FloatArray

RIGHT = Pair("one two three four", "one two three four", "one two three four")
LIVE_WRONG = Pair("one two three four", "one two three four", "one two three")
OFFLINE_WRONG = Pair("one two three four", "one two two four", "one two three four")


@pytest.fixture(scope="module")
def bank() -> DigitBank:
    return DigitBank([Recording(digit, "x", np.ones(800, np.float32)) for digit in range(10)])


def test_a_group_has_at_least_so_many_digits_in_strings_of_its_lengths(bank: DigitBank) -> None:
    strings = strings_of_group(bank, GROUPS["1 to 5"], 40, 1)
    assert [len(one.digits) for one in strings] == [1, 2, 3, 4, 5] * 3
    other = strings_of_group(bank, GROUPS["1 to 5"], 40, 2)
    assert [one.digits for one in other] != [one.digits for one in strings]


def test_both_ways_hear_the_same_string(bank: DigitBank) -> None:
    heard: list[int] = []

    class Offline:
        def text(self, samples: FloatArray) -> str:
            heard.append(samples.size)
            return "one"

    class Listener:
        def listen(self, samples: FloatArray, language: str) -> VirtualRun:
            assert language == "en"
            heard.append(samples.size)
            return VirtualRun([arrival(1.0, "two", is_final=True), arrival(2.0, "two three")])

    (string,) = strings_of_group(bank, (3,), 3, 1)
    (pair,) = hear_both_ways([string], Offline(), Listener())  # type: ignore[arg-type]
    assert heard == [string.samples.size, string.samples.size + 16_000]  # with its tail
    assert pair.reference == " ".join(WORDS[digit] for digit in string.digits)
    assert (pair.offline_text, pair.live_text) == ("one", "two")


def test_the_difference_is_in_points_of_all_digits() -> None:
    found = live_over_offline([RIGHT, RIGHT, LIVE_WRONG, RIGHT])
    assert found.difference == pytest.approx(100 / 16)
    assert found.low == 0.0
    assert found.high > found.difference
    assert live_over_offline([RIGHT, OFFLINE_WRONG]).difference == pytest.approx(-100 / 8)


def test_both_ways_are_drawn_together() -> None:
    # The same errors both ways: however strings are drawn, nothing is between the two.
    hard = Pair("one two", "five", "five")
    found = live_over_offline([RIGHT, hard, RIGHT, hard])
    assert (found.difference, found.low, found.high) == (0.0, 0.0, 0.0)


def test_figures_and_verdicts_of_groups_and_of_all() -> None:
    groups = {"a": [RIGHT, LIVE_WRONG], "b": [RIGHT, OFFLINE_WRONG]}
    found = comparison_as_json(groups)
    assert set(found) == {"a", "b", "all", "strings"}
    differing = found["strings"]
    assert isinstance(differing, list)
    assert len(differing) == 2
    verdicts = comparison_verdicts(groups)
    assert [one.is_met for one in verdicts] == [False, True, True]
    assert [one.measured for one in verdicts] == [12.5, -12.5, 0.0]
    assert "all" in verdicts[-1].target
