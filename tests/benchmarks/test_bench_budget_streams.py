from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.streaming.session_options import SessionOptions
from benchmarks.budget_streams import (
    RECOGNISER,
    SESSION,
    StepCosts,
    known_arrivals,
    listen_to_streams,
    shown_after_true_ends,
)
from benchmarks.measures import word_timings
from tests.benchmarks.making import arrival
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer, speech

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.models.base import Hypothesis, RecognizerStream

SAMPLES = np.frombuffer(speech(4, seconds=6.0), "<i2").astype(np.float32) / np.float32(32_768)


def spend(ms: float) -> None:
    until_s = time.thread_time() + ms / 1e3
    while time.thread_time() < until_s:
        pass


class WorkingRecognizer(ScriptedRecognizer):
    """Works for 6 ms a step, 4 of them in a part of its own."""

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        spend(2)
        self.look()
        return super().decode(streams)

    def look(self) -> None:
        spend(4)


@pytest.fixture(scope="module")
def costs() -> StepCosts:
    return listen_to_streams(
        WorkingRecognizer(),
        LoudnessDetector,
        [(SAMPLES, "en"), (SAMPLES, "en")],
        [(WorkingRecognizer, "look", "looking")],
        SessionOptions(),
    )


def test_each_part_of_a_step_is_told_apart(costs: StepCosts) -> None:
    parts = {part.name: part for part in costs.parts({"looking": "at it"})}
    assert list(parts) == ["looking", RECOGNISER, SESSION]
    assert parts["looking"].note == "at it"
    assert 4.0 <= parts["looking"].typical_ms < 6.0
    assert 2.0 <= parts[RECOGNISER].typical_ms < 4.0
    assert parts[SESSION].typical_ms < 2.0
    assert set(costs.calls_of("looking")) == {1}


def test_parts_add_up_to_the_step(costs: StepCosts) -> None:
    for row, step_ms in zip(costs.rows, costs.step_ms, strict=True):
        assert sum(row.values()) == pytest.approx(step_ms, abs=0.5)


def test_only_steps_that_brought_a_caption_count(costs: StepCosts) -> None:
    n_captions = sum(len(arrivals) for arrivals in costs.arrivals)
    assert 0 < len(costs.rows) <= n_captions
    assert len(costs.arrivals) == len(costs.beside_ms) == 2
    assert len(costs.shown_ms) == sum(len(word_timings(one)) for one in costs.arrivals)


def test_nothing_measured_is_an_error_and_no_figure() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        StepCosts().parts({})


def test_latencies_count_from_the_true_ends() -> None:
    said = [arrival(700, "one"), arrival(1500, "one two five", is_final=True)]
    found = shown_after_true_ends(said, ["one", "two", "three", "four"], [500, 900, 1200, 1600])
    assert found == [200.0, 600.0]


def test_words_are_known_before_they_are_shown(costs: StepCosts) -> None:
    known = known_arrivals(ScriptedRecognizer(), LoudnessDetector, SAMPLES, "en", SessionOptions())
    known_ms = [timing.shown_ms for timing in word_timings(known)]
    shown_ms = [timing.shown_ms for timing in word_timings(costs.arrivals[0])]
    assert len(known_ms) == len(shown_ms)
    assert all(a <= b for a, b in zip(known_ms, shown_ms, strict=True))
    assert sum(known_ms) < sum(shown_ms)
    assert all(at_ms == int(at_ms) for at_ms in known_ms)  # audio's clock, no computing
