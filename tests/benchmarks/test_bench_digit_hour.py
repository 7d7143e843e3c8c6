from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from audiokv.models.base import StreamOptions
from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from benchmarks.digit_figures import part_length_ms, parts, run_as_json, run_verdicts
from benchmarks.digit_hour import MINUTE_MS, LongRun, Observed, ObservedRun, StepLog, hear
from benchmarks.digit_streams import DigitStream, PlacedString
from benchmarks.measures import Errors
from benchmarks.virtual_stream import Piece, Step, VirtualRun
from tests.benchmarks.making import arrival

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.targets import Verdict

COUNTERS = CacheCounters(
    policy="x",
    seen_slots=100,
    held_slots=20,
    budget_slots=24,
    pools=PoolSlots(10, 8, 2),
    n_evictions=Evictions(1, 2, 4),
    held_bytes=5,
    left_slots=LeftSlots(0, 0, 0, 0),
    chosen_slots=ChosenSlots(0, 0, 0),
)
N_MINUTES = 24


class Counting:
    """A stream's counters alone."""

    def __init__(self, counters: CacheCounters | None = COUNTERS) -> None:
        self.n_reanchors = 3
        self.n_restarts = 1
        self._counters = counters

    def cache_counters(self) -> CacheCounters | None:
        return self._counters


def placed(start_ms: float, words: str = "one two") -> PlacedString:
    n = len(words.split())
    starts = tuple(start_ms + 300 * i for i in range(n))
    return PlacedString(
        tuple(words.split()), starts, tuple(a + 200 for a in starts), start_ms, start_ms + 300 * n
    )


def made(**changes: Any) -> LongRun:
    """A run of some minutes, a string and four steps a minute, all of it right and flat."""
    strings = tuple(placed(MINUTE_MS * minute + 1000.0) for minute in range(N_MINUTES))
    stream = DigitStream(np.zeros(N_MINUTES * MINUTE_MS * 16, np.float32), strings)
    log = StepLog(4 * N_MINUTES)
    for step in range(4 * N_MINUTES):
        log.take(Step(step * MINUTE_MS // 4, 10.0 + step % 4, 0.0), 1_000_000_000, Counting())
    arrivals = [arrival(one.end_ms, one.text, is_final=True) for one in strings]
    for found, one in zip(arrivals, strings, strict=True):
        words = tuple(
            replace(word, start_ms=round(a), end_ms=round(b))
            for word, a, b in zip(found.caption.words, one.starts_ms, one.ends_ms, strict=True)
        )
        object.__setattr__(found.caption, "words", words)
    return replace(LongRun(stream, arrivals, log, 0.2, 24), **changes)


def verdict(run: LongRun, name: str) -> Verdict:
    found = [one for one in run_verdicts(run, right(run)) if one.target.startswith(name)]
    assert len(found) == 1
    return found[0]


def right(run: LongRun) -> list[Errors]:
    return [Errors(n_reference=len(one.words)) for one in run.stream.strings]


def test_a_flat_run_within_its_bounds_meets_everything() -> None:
    run = made()
    assert [one.line() for one in run_verdicts(run, right(run)) if not one.is_met] == []
    found = run_as_json(run, right(run))
    assert (found["error_percent"], found["seen_slots"], found["n_evictions"]) == (0.0, 100, 7)
    assert (found["n_reanchors"], found["n_restarts"]) == (3, 1)
    assert isinstance(found["by_part"], list)
    assert len(found["by_part"]) == 6


@pytest.mark.parametrize(
    ("column", "name"), [("compute_ms", "step p50"), ("rss_bytes", "memory"), ("held_slots", "sl")]
)
def test_what_grows_is_noticed(column: str, name: str) -> None:
    run = made()
    figures = getattr(run.log, column)
    figures[:] = figures * np.linspace(1.0, 1.2, len(figures))
    assert not verdict(run, name).is_met


def test_a_tail_that_grows_is_noticed() -> None:
    run = made()
    run.log.compute_ms[3::4] *= np.linspace(1.0, 2.0, N_MINUTES)
    assert not verdict(run, "step p99").is_met
    assert verdict(run, "step p50").is_met


def test_errors_that_grow_are_noticed() -> None:
    run = made()
    n_right = N_MINUTES // 2
    assert not verdict(replace(run, arrivals=run.arrivals[:n_right]), "error").is_met


def test_too_many_slots_too_few_moves_and_slowness_are_noticed() -> None:
    run = made()
    run.log.held_slots[17] = 25
    assert not verdict(run, "most slots").is_met
    run = made()
    run.log.n_reanchors[:] = 1
    assert not verdict(run, "re-anchorings").is_met
    assert not verdict(made(cpu_s_per_audio_s=1.1), "computing").is_met


def test_the_first_minutes_do_not_count() -> None:
    run = made()
    run.log.compute_ms[:8] = 500.0
    run.log.rss_bytes[:8] = 1
    assert all(one.is_met for one in run_verdicts(run, right(run)))


def test_parts_share_strings_and_steps_out() -> None:
    run = made()
    found = parts(run, [Errors(1, 0, 0, 2) for _ in run.stream.strings], 10 * MINUTE_MS)
    assert [one.from_ms / MINUTE_MS for one in found] == [0, 10]  # the rest joins the last
    assert [one.errors.n_reference for one in found] == [20, 28]
    assert [one.offline.substitutions for one in found] == [10, 14]
    assert [(one.steps.start, one.steps.stop) for one in found] == [(0, 40), (40, 96)]


def test_parts_are_ten_minutes_or_a_sixth() -> None:
    assert part_length_ms(made()) == 4 * MINUTE_MS
    silence = np.broadcast_to(np.float32(0), 90 * MINUTE_MS * 16)
    hours = made(stream=DigitStream(silence, (placed(0.0),)))
    assert part_length_ms(hours) == 10 * MINUTE_MS


def test_a_log_does_not_grow_and_wants_a_budget() -> None:
    log = StepLog(2)
    log.take(Step(1, 2.0, 0.0), 7, Counting())
    assert len(log.at_ms) == 2
    assert log.within(0.0, 2.0) == slice(0, 1)
    with pytest.raises(ValueError, match="budget"):
        log.take(Step(2, 2.0, 0.0), 7, Counting(None))


def test_only_streams_that_count_are_observed() -> None:
    counting, wishes, info = Counting(), StreamOptions(), object()
    inner: Any = SimpleNamespace(open_stream=lambda asked: asked is wishes and counting, info=info)
    observed = Observed(inner)
    opened: object = observed.open_stream(wishes)
    assert opened is counting
    assert observed.stream is counting
    assert observed.info is inner.info
    plain: Any = Observed(inner)
    plain._inner = SimpleNamespace(open_stream=lambda _: object())
    with pytest.raises(TypeError, match="re-anchorings"):
        plain.open_stream(wishes)


def test_a_long_stream_is_heard_frame_by_frame() -> None:
    stream = DigitStream(np.full(16 * 1000, 0.5, np.float32), (placed(0.0),))
    observed: Any = SimpleNamespace(stream=Counting())
    heard: list[Piece] = []

    class Listener:
        def listen_to(
            self, pieces: Iterable[Piece], wishes: StreamOptions, run: VirtualRun
        ) -> VirtualRun:
            assert wishes.language == "en"
            heard.extend(pieces)
            run.take_caption(arrival(1.0, "one"))
            run.take_caption(arrival(2.0, "one two", is_final=True))
            run.take_step(Step(200, 30.0, 30.0))
            run.listen_ms, run.duration_ms = 20.0, 1000.0
            return run

    listener: Any = Listener()
    run = hear(stream, observed, listener, 24)
    assert [one.at_ms for one in heard] == [10.0 * n for n in range(1, 101)]
    assert {len(one.audio) for one in heard} == {320}
    assert [one.caption.text for one in run.arrivals] == ["one two"]
    assert run.cpu_s_per_audio_s == pytest.approx(0.05)
    assert (run.log.n_steps, run.log.compute_ms[0], run.budget_slots) == (1, 30.0, 24)
    assert run.log.rss_bytes[0] > 1_000_000


def test_a_run_keeps_no_partial_captions() -> None:
    run = ObservedRun(log=StepLog(1))
    run.take_caption(arrival(1.0, "one"))
    assert run.arrivals == []
