"""Cost of the eviction policy: per 10 ms frame, per eviction, and what prefetch does to steps.

Times are those of the thread on the processor: what the work costs, whoever else is running.
Needs no model: marks come from synthetic audio, attention from a seeded generator. Run it as
``python benchmarks/policy.py``; it writes ``results/policy.json`` and ``results/policy.png``.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

import matplotlib as mpl
import numpy as np

from audiokv.streaming.policy.assembly import DriverOptions, open_driver
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marker import SlotMarker, Talker
from audiokv.streaming.policy.marks import Reason, SlotMarks
from audiokv.streaming.policy.prefetch import NoPrefetch, Prefetch, RhythmPrefetch, StepPrefetch
from audiokv.streaming.policy.registry import POLICY_NAMES
from benchmarks.results_file import RESULTS, provenance, write_results

mpl.use("Agg")
import matplotlib.pyplot as plt

SLOT_MS = 20
FRAME_SAMPLES = 160
BUDGETS_SLOTS = (128, 256, 512, 1024, 2048)
HEADLINE_SLOTS = 1024
STEP_FRAMES = (1, 16)
N_STEPS = 400
N_REPEATS = 60
N_PREPARED = 4096
COMMIT_LAG_MS = 800
PREFETCHES: dict[str, Prefetch] = {
    "off": NoPrefetch(),
    "step": StepPrefetch(),
    "rhythm": RhythmPrefetch(),
}


@dataclass
class Durations:
    """Durations of one kind of work in seconds."""

    seconds: list[float] = field(default_factory=list)

    def summary_us(self, per: int = 1) -> dict[str, float]:
        """Return mean, median and 99th percentile in microseconds, divided by ``per``."""
        values = np.array(self.seconds or [0.0]) * 1e6 / per
        return {
            "mean": round(float(values.mean()), 2),
            "p50": round(float(np.percentile(values, 50)), 2),
            "p99": round(float(np.percentile(values, 99)), 2),
            "n": len(self.seconds),
        }


class Speech:
    """Endless make-believe speech: phrases of noise with changing colour, and pauses between."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._left_frames = 0
        self._is_voice = False
        self._colour = np.ones(1, np.float32)

    def frames(self, n_frames: int) -> tuple[np.ndarray, np.ndarray]:
        """Return samples of the next frames and whether each is voiced."""
        samples, is_voice = [], []
        for _ in range(n_frames):
            if not self._left_frames:
                self._is_voice = not self._is_voice
                longest = 300 if self._is_voice else 60
                self._left_frames = int(self._rng.integers(longest // 3, longest))
            if self._rng.random() < 1 / 8:
                self._colour = self._rng.standard_normal(6).astype(np.float32)
            noise = self._rng.standard_normal(FRAME_SAMPLES).astype(np.float32)
            level = 0.1 if self._is_voice else 0.001
            samples.append(level * np.convolve(noise, self._colour, "same").astype(np.float32))
            is_voice.append(self._is_voice)
            self._left_frames -= 1
        return np.concatenate(samples), np.array(is_voice, np.bool_)


@dataclass
class StreamCost:
    """What a simulated stream cost.

    Attributes:
        hot: Work of a step before its captions can go out, eviction over budget included.
        frames: Work of a step without evictions, whenever they ran.
        marking: The part of ``frames`` that looks at audio: bands, boundary, power.
        evictions: Choosing, renumbering and what decides how much.
        use: Share of the budget held when the model would run, once it had filled up.
    """

    hot: Durations = field(default_factory=Durations)
    frames: Durations = field(default_factory=Durations)
    marking: Durations = field(default_factory=Durations)
    evictions: Durations = field(default_factory=Durations)
    use: list[float] = field(default_factory=list)
    n_hot: int = 0
    n_ahead: int = 0


def run_stream(
    total_slots: int, step_frames: int, prefetch: Prefetch, n_steps: int, policy: str = "audiokv"
) -> StreamCost:
    """Fill a budget and go on for some steps, timing every part."""
    options = DriverOptions(high_water=1.0, prefetch=prefetch)
    driver = open_driver(policy, total_slots, SLOT_MS, options)
    marker = SlotMarker(SLOT_MS)
    speech, cost = Speech(0), StreamCost()
    # Made before the loop, so that making them does not displace what is measured from the caches.
    steps = [speech.frames(step_frames) for _ in range(N_PREPARED // step_frames)]
    attentions = np.random.default_rng(1).random((16, total_slots + 64)) ** 4
    n_fill = total_slots * SLOT_MS // (10 * step_frames) + 1
    probe_every = max(1, 16 // step_frames)
    for step in range(n_fill + n_steps):
        if step == n_fill:
            cost = StreamCost()
        samples, is_voice = steps[step % len(steps)]
        attention = attentions[step % len(attentions)]
        begin = time.thread_time()
        marks = marker.push(samples, is_voice, Talker("ann", "en"))
        marked = time.thread_time()
        driver.append(marks)
        appended = time.thread_time()
        plan = driver.plan()
        if plan:
            driver.apply(plan)
            cost.n_hot += 1
        planned = time.thread_time()
        if plan:
            cost.evictions.seconds.append(planned - appended)
        cost.use.append(driver.ledger.held / total_slots)
        if step % probe_every == 0:
            driver.observe(attention[: driver.ledger.held])
            driver.commit_until(driver.ledger.now_ms - COMMIT_LAG_MS)
        observed = time.thread_time()
        if step % probe_every == 0:
            driver.settle()
        settled = time.thread_time()
        ahead = driver.plan_ahead()
        if ahead:
            driver.apply(ahead)
            cost.evictions.seconds.append(time.thread_time() - settled)
            cost.n_ahead += 1
        evicting = planned - appended if plan else 0.0
        cost.marking.seconds.append(marked - begin)
        cost.hot.seconds.append(observed - begin)
        cost.frames.seconds.append(settled - begin - evicting)
    return cost


def full_ledger(total_slots: int) -> SlotLedger:
    """Return a ledger over its budget by one step, with attention, commits and scores."""
    rng = np.random.default_rng(2)
    ledger = SlotLedger()
    n_slots = total_slots + 8
    ledger.append(
        [
            SlotMarks(at * 20, at * 20 + 20, is_voice=rng.random() < 0.8, language="en")  # noqa: PLR2004
            for at in range(n_slots)
        ]
    )
    for _ in range(8):
        ledger.attention.observe(rng.random(n_slots) ** 4, 0.3)
    ledger.set_scores(rng.random(n_slots))
    ledger.commit_until(total_slots * 20 - COMMIT_LAG_MS)
    return ledger


def cost_by_policy() -> dict[str, dict[str, float]]:
    """Return what choosing and renumbering cost each policy at the headline budget."""
    costs = {}
    for name in POLICY_NAMES:
        policy = open_driver(name, HEADLINE_SLOTS, SLOT_MS).policy
        durations = Durations()
        for _ in range(N_REPEATS):
            ledger = full_ledger(HEADLINE_SLOTS)
            begin = time.thread_time()
            ledger.evict(policy.choose(ledger, 32), Reason.AHEAD)
            durations.seconds.append(time.thread_time() - begin)
        costs[name] = durations.summary_us()
    return costs


def cost_by_budget() -> list[dict[str, object]]:
    """Return what a frame and an eviction cost by budget and by frames a step."""
    rows: list[dict[str, object]] = []
    for total_slots in BUDGETS_SLOTS:
        for step_frames in STEP_FRAMES:
            n_steps = N_STEPS * (4 if step_frames == 1 else 1)
            cost = run_stream(total_slots, step_frames, StepPrefetch(), n_steps)
            rows.append(
                {
                    "budget_slots": total_slots,
                    "step_frames": step_frames,
                    "per_frame_us": cost.frames.summary_us(step_frames),
                    "of_which_marking_us": cost.marking.summary_us(step_frames),
                    "per_eviction_us": cost.evictions.summary_us(),
                }
            )
    return rows


def cost_by_prefetch() -> dict[str, dict[str, object]]:
    """Return the hot path's step times, and the use of the budget, with prefetch on and off."""
    rows: dict[str, dict[str, object]] = {}
    for name, prefetch in PREFETCHES.items():
        cost = run_stream(HEADLINE_SLOTS, 16, prefetch, 3 * N_STEPS)
        hot = cost.hot.summary_us()
        rows[name] = {
            "hot_step_us": hot,
            "hot_p99_over_p50": round(hot["p99"] / hot["p50"], 2),
            "n_evictions_hot": cost.n_hot,
            "n_evictions_ahead": cost.n_ahead,
            "budget_use": {
                "min": round(min(cost.use), 4),
                "mean": round(float(np.mean(cost.use)), 4),
                "max": round(max(cost.use), 4),
            },
        }
    return rows


def plot(by_budget: list[dict[str, object]], by_policy: dict[str, dict[str, float]]) -> None:
    """Draw cost by budget and by policy."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for step_frames in STEP_FRAMES:
        rows = [row for row in by_budget if row["step_frames"] == step_frames]
        budgets = [row["budget_slots"] for row in rows]
        means = [row["per_frame_us"]["mean"] for row in rows]  # type: ignore[index]
        left.plot(budgets, means, marker="o", label=f"{step_frames * 10} ms a step")
    left.axhline(20, color="grey", linestyle=":", label="target")
    left.set(
        xlabel="budget (slots)", ylabel="µs per 10 ms frame, mean", xscale="log", ylim=(0, None)
    )
    left.set_xticks(BUDGETS_SLOTS, [str(slots) for slots in BUDGETS_SLOTS])
    left.minorticks_off()
    left.legend()
    right.barh([*by_policy], [cost["p50"] for cost in by_policy.values()])
    right.set(xlabel=f"µs per eviction of 32 of {HEADLINE_SLOTS} slots, median")
    figure.tight_layout()
    figure.savefig(RESULTS / "policy.png", dpi=120)


def main() -> None:
    """Measure, print and write."""
    origin = provenance(("audiokv", "numpy"))
    results: dict[str, object] = {
        "slot_ms": SLOT_MS,
        "by_budget": cost_by_budget(),
        "by_prefetch": cost_by_prefetch(),
        "by_policy_us": cost_by_policy(),
    }
    print(json.dumps(results, indent=1))
    write_results("policy", results, origin)
    plot(results["by_budget"], results["by_policy_us"])  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
