from __future__ import annotations

from dataclasses import replace

import pytest

from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from benchmarks.long_stream import HeldLog, complaints, figures
from benchmarks.virtual_stream import Step, VirtualRun

EMPTY = CacheCounters(
    policy="audiokv",
    seen_slots=0,
    held_slots=0,
    budget_slots=100,
    pools=PoolSlots(0, 0, 0),
    n_evictions=Evictions(0, 0, 0),
    held_bytes=0,
    left_slots=LeftSlots(0, 0, 0, 0),
    chosen_slots=ChosenSlots(0, 0, 0),
)


def counters(held: int, *, ahead: int = 0, expired: int = 0, hot: int = 0) -> CacheCounters:
    return replace(
        EMPTY,
        held_slots=held,
        held_bytes=10 * held,
        n_evictions=Evictions(hot, ahead, 0),
        left_slots=LeftSlots(0, ahead, expired, 0),
    )


def test_use_counts_once_a_window_has_more_audio_than_the_budget() -> None:
    log = HeldLog()
    for one in (
        counters(60),
        counters(100),
        counters(98, ahead=12),
        counters(30, ahead=12, expired=98),  # a fresh window is not full
        counters(100, ahead=13, expired=98),
    ):
        log.take(one)
    assert log.held_slots == [60, 100, 98, 30, 100]
    assert log.uses == [0.98, 1.0]
    assert (log.n_hot, log.n_ahead) == (0, 13)


def test_a_run_is_summed_up() -> None:
    log = HeldLog()
    log.take(counters(99, ahead=5, hot=2))
    run = VirtualRun(steps=[Step(0, ms, ms) for ms in (10.0, 10.0, 10.0, 40.0)], duration_ms=6e4)
    told = figures(run, log, 100)
    assert told["minutes"] == 1.0
    assert told["held_bytes_at_most"] == 990
    assert told["n_evictions_hot"] == 2
    assert told["step_ms_p50_by_quarter"] == [10.0, 10.0, 10.0, 40.0]


@pytest.mark.parametrize(
    ("held", "hot", "n_found"), [(100, 0, 0), (101, 0, 1), (90, 0, 1), (100, 3, 1)]
)
def test_what_does_not_hold_is_said(held: int, hot: int, n_found: int) -> None:
    log = HeldLog()
    log.take(counters(held, ahead=50, hot=hot))
    assert len(complaints({"n_evictions_hot": hot}, log, 100)) == n_found
