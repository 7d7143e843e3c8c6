"""Figures and verdicts of a long stream of digits: wrong, held and spent, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.digit_hour import MINUTE_MS
from benchmarks.digit_streams import errors_of_strings
from benchmarks.measures import Errors
from benchmarks.slopes import growth_verdict, slope
from benchmarks.targets import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.digit_hour import LongRun, StepLog

PART_MINUTES = 10
WARM_UP_MINUTES = 2  # libraries allocate and compile their first steps
MIN_REANCHORS = 2
_MEGABYTE = 1e6

# Growth an hour that does not matter.
ERROR_POINTS = 1.0
MEMORY_MB = 8.0
STEP_SHARE = 0.03  # of the median step
HELD_SLOTS = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """Figures of one part of a long stream.

    Attributes:
        from_ms: Where it begins.
        errors: Errors of the strings that begin in it.
        offline: Errors of decoding them one by one, at once.
        steps: Its steps in the log.
    """

    from_ms: float
    errors: Errors
    offline: Errors
    steps: slice


def parts(run: LongRun, offline: Sequence[Errors], part_ms: float) -> list[Part]:
    """Cut a run into parts of equal length; a rest shorter than half of that joins the last.

    Args:
        run: The run.
        offline: Errors of each string, decoded at once.
        part_ms: Length of a part.
    """
    n_parts = max(1, round(run.stream.duration_ms / part_ms))
    begins_ms = part_ms * np.arange(n_parts)
    live = errors_of_strings(run.stream, run.arrivals)
    found = []
    for n, from_ms in enumerate(begins_ms):
        to_ms = np.inf if n == n_parts - 1 else from_ms + part_ms
        chosen = [
            at for at, one in enumerate(run.stream.strings) if from_ms <= one.start_ms < to_ms
        ]
        found.append(
            Part(
                float(from_ms),
                sum((live[at] for at in chosen), Errors()),
                sum((offline[at] for at in chosen), Errors()),
                run.log.within(from_ms, to_ms),
            )
        )
    return found


def part_as_json(part: Part, log: StepLog) -> dict[str, object]:
    """Return the figures of a part for the results file."""
    steps = part.steps
    before = max(steps.start - 1, 0)
    last = max(steps.stop - 1, 0)
    compute_ms = log.compute_ms[steps]
    rss_mb = log.rss_bytes[steps] / _MEGABYTE
    return {
        "from_minute": round(part.from_ms / MINUTE_MS, 2),
        "n_digits": part.errors.n_reference,
        "error_percent": round(100 * part.errors.rate, 2),
        "offline_error_percent": round(100 * part.offline.rate, 2),
        "n_steps": len(compute_ms),
        "step_cpu_ms_p50": round(float(np.percentile(compute_ms, 50)), 2),
        "step_cpu_ms_p99": round(float(np.percentile(compute_ms, 99)), 2),
        "rss_mb_mean": round(float(rss_mb.mean()), 1),
        "rss_mb_max": round(float(rss_mb.max()), 1),
        "held_slots_at_most": int(log.held_slots[steps].max()),
        "held_slots_mean": round(float(log.held_slots[steps].mean()), 1),
        "n_evictions": int(log.n_evictions[last] - log.n_evictions[before]),
        "n_reanchors": int(log.n_reanchors[last] - log.n_reanchors[before]),
    }


def run_as_json(run: LongRun, offline: Sequence[Errors]) -> dict[str, object]:
    """Return the figures of a run for the results file."""
    log, last = run.log, max(run.log.n_steps - 1, 0)
    total = sum(errors_of_strings(run.stream, run.arrivals), Errors())
    return {
        "minutes": round(run.stream.duration_ms / MINUTE_MS, 2),
        "n_strings": len(run.stream.strings),
        "n_digits": run.stream.n_digits,
        "error_percent": round(100 * total.rate, 2),
        "offline_error_percent": round(100 * sum(offline, Errors()).rate, 2),
        "cpu_s_per_audio_s": round(run.cpu_s_per_audio_s, 4),
        "n_steps": log.n_steps,
        "seen_slots": int(log.seen_slots[last]),
        "held_slots_at_most": int(log.held_slots[: log.n_steps].max(initial=0)),
        "n_evictions": int(log.n_evictions[last]),
        "n_reanchors": int(log.n_reanchors[last]),
        "n_restarts": int(log.n_restarts[last]),
        "by_part": [part_as_json(one, log) for one in parts(run, offline, part_length_ms(run))],
    }


def part_length_ms(run: LongRun) -> float:
    """Return ten minutes, or a sixth of a stream that is shorter than an hour."""
    return min(PART_MINUTES * MINUTE_MS, run.stream.duration_ms / 6)


def run_verdicts(run: LongRun, offline: Sequence[Errors]) -> list[Verdict]:
    """Judge a run: within its bounds, and flat."""
    log = run.log
    last = max(log.n_steps - 1, 0)
    minutes = [
        one
        for one in parts(run, offline, MINUTE_MS)
        if one.from_ms >= WARM_UP_MINUTES * MINUTE_MS and one.steps.stop > one.steps.start
    ]
    hours = [one.from_ms / (60 * MINUTE_MS) for one in minutes]
    median_ms = float(np.median(log.compute_ms[: log.n_steps])) if log.n_steps else 0.0

    def step_ms(percent: float) -> list[float]:
        return [float(np.percentile(log.compute_ms[one.steps], percent)) for one in minutes]

    errors_percent = [100 * one.errors.rate for one in minutes]
    rss_mb = [float(log.rss_bytes[one.steps].mean()) / _MEGABYTE for one in minutes]
    held = [float(log.held_slots[one.steps].max()) for one in minutes]
    n_reanchors = int(log.n_reanchors[last]) if log.n_steps else 0
    return [
        Verdict("computing over the audio's length", run.cpu_s_per_audio_s, 1.0),
        Verdict(
            "most slots held",
            float(log.held_slots[: log.n_steps].max(initial=0)),
            run.budget_slots,
            "slots",
        ),
        Verdict(
            f"re-anchorings missing of {MIN_REANCHORS}",
            float(max(0, MIN_REANCHORS - n_reanchors)),
            0.0,
            note=f"{n_reanchors} times",
        ),
        growth_verdict("error", slope(hours, errors_percent), ERROR_POINTS, "points"),
        growth_verdict("memory", slope(hours, rss_mb), MEMORY_MB, "MB"),
        growth_verdict("step p50", slope(hours, step_ms(50)), STEP_SHARE * median_ms, "ms"),
        growth_verdict("step p99", slope(hours, step_ms(99)), STEP_SHARE * median_ms, "ms"),
        growth_verdict("slots held", slope(hours, held), HELD_SLOTS, "slots"),
    ]
