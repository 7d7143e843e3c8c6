from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.retention_statistics import Interval, Sample, paired_interval, reference, samples
from tests.benchmarks.retention_making import HELD, row

CLIPS = [f"clip{i}" for i in range(12)]


def sample(policy: str, wrong: list[int], seed: int = 0) -> Sample:
    rows = [row(c, policy, n, seed=seed) for c, n in zip(CLIPS, wrong, strict=False)]
    return Sample(tuple(rows))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12))
def test_a_policy_does_not_differ_from_itself(wrong: list[int]) -> None:
    found = paired_interval(sample("a", wrong), sample("b", wrong), 200)
    assert found == Interval(0.0, 0.0, 0.0, len(wrong))
    assert found.verdict == "same"


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=12),
)
def test_swapping_the_policies_swaps_the_sign(wrong: list[tuple[int, int]]) -> None:
    first, second = (sample(str(i), [pair[i] for pair in wrong]) for i in range(2))
    there, back = paired_interval(first, second, 300), paired_interval(second, first, 300)
    assert there.difference == pytest.approx(-back.difference)
    assert there.low == pytest.approx(-back.high)
    assert there.low <= there.difference + 1e-9 or there.low == pytest.approx(there.difference)


def test_a_difference_in_every_clip_is_one() -> None:
    worse = paired_interval(sample("a", [4] * 12), sample("b", [1] * 12))
    assert (worse.difference, worse.low, worse.high) == pytest.approx((30.0, 30.0, 30.0))
    assert worse.verdict == "worse"
    better = paired_interval(sample("b", [1] * 12), sample("a", [4] * 12))
    assert better.verdict == "better"


def test_from_few_recordings_nothing_is_concluded() -> None:
    verdicts = [
        paired_interval(sample("a", [4] * n), sample("b", [1] * n), 100).verdict for n in (4, 5)
    ]
    assert verdicts == ["same", "worse"]


def test_a_difference_in_one_clip_may_be_chance() -> None:
    one = paired_interval(sample("a", [9] + [0] * 11), sample("b", [0] * 12))
    assert one.difference == pytest.approx(7.5)
    assert one.verdict == "same"
    assert one.low == 0.0


def test_the_interval_has_the_width_theory_gives() -> None:
    # Per-clip differences of 0 or 2 words in 10: mean 10 points, standard error 10/sqrt(12).
    found = paired_interval(sample("a", [0, 2] * 6), sample("b", [0] * 12), 10_000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 10 / 12**0.5, rel=0.2)


def tied(one: Sample) -> Sample:
    """Let the first half of the clips be of one recording, and the second of another."""
    return Sample(tuple(replace(r, cluster="ab"[i // 6]) for i, r in enumerate(one.rows)))


def test_clips_of_one_recording_are_drawn_together() -> None:
    wrong, zero = sample("a", [9] * 6 + [0] * 6), sample("b", [0] * 12)
    together, apart = paired_interval(tied(wrong), tied(zero)), paired_interval(wrong, zero)
    assert together.high - together.low > 1.5 * (apart.high - apart.low)


def test_clips_that_one_policy_lacks_are_left_out() -> None:
    found = paired_interval(sample("a", [0, 0, 9]), sample("b", [0, 0]))
    assert found.difference == 0.0
    nothing = Sample((row("elsewhere", "b", 9),))
    assert paired_interval(sample("a", [5]), nothing) == Interval(0.0, 0.0, 0.0, 0)


def test_seeds_count_as_chance_too() -> None:
    lucky, unlucky = sample("random", [0] * 12, seed=0), sample("random", [8] * 12, seed=1)
    both = Sample((*lucky.rows, *unlucky.rows))
    found = paired_interval(both, sample("b", [4] * 12))
    assert found.difference == pytest.approx(0.0)
    assert (found.low, found.high) == pytest.approx((-40.0, 40.0))


def test_samples_say_what_their_rows_say() -> None:
    rows = [row("a", "fifo", 1), row("b", "fifo", 20), row("c", "fifo", 4), row("a", "full", 0)]
    found = samples(rows)
    fifo = found["fifo", 40]
    assert fifo.errors.total == 25
    assert fifo.capped_rate == pytest.approx(15 / 30)
    assert fifo.median_rate == 0.4
    assert fifo.collapse_rate == pytest.approx(1 / 3)
    assert (fifo.max_of_budget, fifo.mean_share) == (1.0, 0.5)
    assert fifo.mean_of_budget == pytest.approx(0.9875)
    assert reference(found).errors.total == 0
    never_full = replace(rows[0], held=replace(HELD, mean_full_bytes=0.0))
    assert Sample((never_full,)).mean_of_budget == 0.0


def test_without_the_full_cache_nothing_can_be_said() -> None:
    with pytest.raises(SystemExit, match="full cache"):
        reference(samples([row("a", "fifo", 1)]))


def test_intervals_do_not_depend_on_the_order_of_rows() -> None:
    rows = list(sample("a", list(range(12))).rows)
    other = sample("b", [3] * 12)
    order = np.random.default_rng(1).permutation(12)
    shuffled = Sample(tuple(rows[i] for i in order))
    assert paired_interval(shuffled, other) == paired_interval(Sample(tuple(rows)), other)
