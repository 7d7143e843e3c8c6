from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.speaker_baseline import (
    BURST_VALUES,
    LONG_RUN_MIN_VALUES,
    MAX_SPEAKERS,
    MEMORY_VALUES,
    SpeakerBaseline,
    SpeakerBaselines,
)


def taught(values: list[float], burst_factor: float = math.inf) -> SpeakerBaseline:
    baseline = SpeakerBaseline(burst_factor)
    for value in values:
        baseline.learn(value)
    return baseline


@given(st.lists(st.floats(-5, 5, width=16), max_size=80))
def test_the_long_run_is_everything_but_the_latest_ten(values: list[float]) -> None:
    baseline = taught(values)
    long_run = values[:-BURST_VALUES]
    has_long_run = len(long_run) >= LONG_RUN_MIN_VALUES
    expected = np.array(long_run if has_long_run else values[-BURST_VALUES:] or [0.0])
    assert baseline.mean == pytest.approx(expected.mean(), abs=1e-9)
    assert baseline.spread == pytest.approx(expected.std(), abs=1e-6)


def noise(n_values: int, level: float, spread: float) -> list[float]:
    return [level + spread * value for value in np.random.default_rng(0).standard_normal(n_values)]


def test_a_burst_restarts_the_baseline_and_a_calm_stream_does_not() -> None:
    calm = noise(200, 1.0, 0.1)
    assert taught(calm, 2.0).n_restarts == 0
    loud = [*calm, *noise(30, 5.0, 1.0)]
    restarted, drifted = taught(loud, 2.0), taught(loud, math.inf)
    assert restarted.n_restarts == 1
    assert drifted.n_restarts == 0
    assert abs(restarted.mean - 5.0) < 0.25 * abs(drifted.mean - 5.0)


def test_the_burst_factor_counts() -> None:
    burst = [*noise(200, 1.0, 0.1), *noise(10, 1.0, 0.3)]
    assert taught(burst, 2.0).n_restarts == 1
    assert taught(burst, 5.0).n_restarts == 0


def test_it_must_have_settled_before_a_burst_counts() -> None:
    assert taught([*[1.0] * 15, *noise(14, 9.0, 5.0)], 0.01).n_restarts == 0
    assert taught([*[1.0] * 15, *noise(15, 9.0, 5.0)], 0.01).n_restarts == 1


def test_a_single_spike_moves_the_mean_by_a_tenth_of_it() -> None:
    calm = [*noise(200, 1.0, 0.1), 11.0]
    assert taught(calm, 2.0).n_restarts == 1
    assert taught(calm, 2.0).mean == pytest.approx(2.0, abs=0.1)
    assert taught([*calm, *[1.0] * 30], 2.0).mean == pytest.approx(1.5, abs=0.1)


def test_the_memory_is_bounded_so_that_it_follows_slow_change() -> None:
    values = [*[0.0] * (3 * MEMORY_VALUES), *[1.0] * MEMORY_VALUES]
    assert taught(values).mean > 0.6


def test_a_factor_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="burst factor"):
        SpeakerBaseline(0.0)


def test_speakers_are_normalized_by_their_own_level() -> None:
    baselines = SpeakerBaselines()
    values = np.array([*noise(100, 1.0, 0.1), *noise(100, 10.0, 2.0)])
    speakers = np.repeat(np.array([1, 2], np.int16), 100)
    baselines.learn(values, speakers)
    normalized = baselines.normalize(np.array([1.1, 12.0]), np.array([1, 2], np.int16))
    assert normalized == pytest.approx([1.0, 1.0], abs=0.25)
    assert baselines.means(np.array([2, 1], np.int16)) == pytest.approx([10, 1], rel=0.05)


def test_an_unknown_speaker_stands_at_zero_and_a_steady_one_has_a_least_spread() -> None:
    baselines = SpeakerBaselines()
    assert baselines.normalize(np.array([3.0]), np.array([7], np.int16)).tolist() == [0.0]
    baselines.learn(np.full(50, 2.0), np.ones(50, np.int16))
    normalized = baselines.normalize(np.array([2.0, 2.002]), np.ones(2, np.int16))
    assert normalized == pytest.approx([0.0, 1.0])


def test_no_values_are_no_trouble() -> None:
    none = np.empty(0, np.int16)
    baselines = SpeakerBaselines()
    baselines.learn(np.empty(0), none)
    assert len(baselines.normalize(np.empty(0), none)) == 0
    assert len(baselines.means(none)) == 0


def test_the_speaker_silent_for_longest_is_forgotten() -> None:
    baselines = SpeakerBaselines()
    for speaker in range(MAX_SPEAKERS):
        baselines.of(speaker).learn(float(speaker + 1))
    baselines.of(0)
    baselines.of(MAX_SPEAKERS)
    assert len(baselines) == MAX_SPEAKERS
    assert baselines.of(0).mean == 1.0
    assert baselines.of(1).mean == 0.0


def test_the_factor_reaches_every_speaker() -> None:
    burst = np.array([*noise(200, 1.0, 0.1), *noise(10, 1.0, 0.3)])
    for factor, n_restarts in ((2.0, 1), (5.0, 0)):
        baselines = SpeakerBaselines(factor)
        baselines.learn(burst, np.ones(len(burst), np.int16))
        assert baselines.of(1).n_restarts == n_restarts
