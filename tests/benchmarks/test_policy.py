from __future__ import annotations

import numpy as np
import pytest

from benchmarks.policy import PREFETCHES, Durations, Speech, cost_by_policy, full_ledger, run_stream


def test_durations_are_summed_up_in_microseconds_per_frame() -> None:
    durations = Durations([1e-6, 3e-6])
    assert durations.summary_us() == {"mean": 2.0, "p50": 2.0, "p99": 2.98, "n": 2}
    assert durations.summary_us(2)["mean"] == 1.0
    assert Durations().summary_us() == {"mean": 0.0, "p50": 0.0, "p99": 0.0, "n": 0}


def test_speech_is_the_same_every_time_and_has_pauses() -> None:
    samples, is_voice = Speech(0).frames(600)
    assert np.array_equal(samples, Speech(0).frames(600)[0])
    assert samples.shape == (600 * 160,)
    assert 0.3 < is_voice.mean() < 1.0


@pytest.mark.parametrize("name", PREFETCHES)
def test_only_without_prefetch_do_hot_steps_evict(name: str) -> None:
    cost = run_stream(128, 16, PREFETCHES[name], n_steps=40)
    assert (cost.n_hot > 0) == (name == "off")
    assert len(cost.frames.seconds) == len(cost.hot.seconds) == 40
    assert len(cost.evictions.seconds) == cost.n_hot + cost.n_ahead > 0
    assert max(cost.use) <= 1.0


def test_every_policy_is_measured_on_a_ledger_over_its_budget() -> None:
    assert full_ledger(100).held == 108
    assert "audiokv" in cost_by_policy()
