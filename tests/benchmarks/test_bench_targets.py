from __future__ import annotations

from typing import Any

import pytest

from benchmarks.measures import Errors
from benchmarks.scoring import Score, Summary
from benchmarks.targets import Verdict, judge


def result(language: str = "en", **changes: Any) -> Score:
    settings: dict[str, Any] = {
        "name": "x",
        "language": language,
        "heard_languages": [language],
        "text": "x",
        "streaming": Errors(5, 0, 0, 100),
        "offline": Errors(4, 0, 0, 100),
        "shown_ms": [400.0] * 20,
        "committed_ms": [900.0] * 20,
        "finalised_ms": 700.0,
        "n_words": 100,
        "n_erased": 20,
    }
    return Score(**{**settings, **changes})


def unmet(*scores: Score) -> list[str]:
    return [verdict.target for verdict in judge(Summary(scores)) if not verdict.is_met]


def test_figures_at_their_limits_are_met() -> None:
    assert unmet(result(), result("de", streaming=Errors(7, 0, 0, 100))) == []


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"streaming": Errors(6, 0, 0, 100)}, "en: streaming error over offline error"),
        ({"shown_ms": [401.0]}, "first-shown latency p50"),
        ({"shown_ms": [0.0] * 9 + [2000.0]}, "first-shown latency p95"),
        ({"committed_ms": [901.0]}, "commit latency p50"),
        ({"finalised_ms": 701.0}, "finalisation latency p50"),
        ({"n_erased": 21}, "normalised erasure"),
        ({"n_changed": 1}, "committed words that changed"),
    ],
)
def test_each_target_can_be_missed(changes: dict[str, Any], target: str) -> None:
    assert unmet(result(**changes)) == [target]


def test_other_languages_may_be_three_points_worse() -> None:
    worse = result("ja", streaming=Errors(8, 0, 0, 100))
    assert unmet(worse) == ["ja: streaming error over offline error"]


def test_what_was_not_measured_is_not_met() -> None:
    silent = result(shown_ms=[], committed_ms=[], finalised_ms=None)
    assert len(unmet(silent)) == 4


def test_a_verdict_is_one_line_with_its_figures() -> None:
    met = Verdict("latency", 350.25, 400.0, "ms", "of 3")
    assert met.line() == "met      latency: 350.2 ms, limit 400 ms (of 3)"
    assert Verdict("latency", None, 400.0).line() == "NOT MET  latency: nothing, limit 400"
    assert met.as_json()["is_met"] is True
