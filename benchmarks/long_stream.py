"""Half an hour of speech under a budget of audio slots: what is held at every step, and its cost.

A session with real weights in virtual time; the recordings follow each other with short pauses.
Measured with room made ahead of need (after each step's captions) and without. Writes
``long_stream.json`` and ``long_stream.png`` into the results; the exit status is 1 where the budget
was exceeded, was not used, or a step had to evict although room is made ahead.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from benchmarks.columns import tell
from benchmarks.joined_stream import join
from benchmarks.measures import percentiles
from benchmarks.recordings import add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.virtual_stream import VirtualListener, one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.models.base import (
        Hypothesis,
        Recognizer,
        RecognizerInfo,
        RecognizerStream,
        StreamOptions,
    )
    from audiokv.streaming.audio_cache import CacheCounters
    from benchmarks.virtual_stream import VirtualRun

mpl.use("Agg")
import matplotlib.pyplot as plt

LEAST_USE = 0.97  # of the budget, once the window has more audio than that
_MINUTE_MS = 60_000


@dataclass(slots=True)
class HeldLog:
    """What a cache held whenever the decoder had run.

    Attributes:
        held_slots: At each step.
        held_bytes: At each step.
        uses: Share of the budget, at the steps whose window has more audio than the budget.
        n_hot: Evictions on the way to a caption.
        n_ahead: Evictions made ahead of need.
    """

    held_slots: list[int] = field(default_factory=list)
    held_bytes: list[int] = field(default_factory=list)
    uses: list[float] = field(default_factory=list)
    n_hot: int = 0
    n_ahead: int = 0
    _n_chosen_before: int = 0
    _n_expired: int = 0

    def take(self, counters: CacheCounters) -> None:
        """Note a step."""
        left = counters.left_slots
        n_chosen = left.forced + left.ahead
        if left.expired != self._n_expired:  # a fresh window
            self._n_expired, self._n_chosen_before = left.expired, n_chosen
        n_present = counters.held_slots + n_chosen - self._n_chosen_before
        self.held_slots.append(counters.held_slots)
        self.held_bytes.append(counters.held_bytes)
        if n_present > counters.budget_slots:
            self.uses.append(counters.held_slots / counters.budget_slots)
        self.n_hot = counters.n_evictions.hot
        self.n_ahead = counters.n_evictions.between_steps + counters.n_evictions.in_pauses


class Watched:
    """Implements ``Recognizer``: writes down what the cache of its one stream holds.

    Args:
        inner: The recogniser, its caches in a budget.
        log: Where to.
        makes_room_ahead: Whether streams make room after their captions are out.
    """

    def __init__(self, inner: Recognizer, log: HeldLog, *, makes_room_ahead: bool) -> None:
        self._inner = inner
        self._log = log
        self._makes_room_ahead = makes_room_ahead

    @property
    def info(self) -> RecognizerInfo:
        """What the model is and can do."""
        return self._inner.info

    def open_stream(self, options: StreamOptions) -> RecognizerStream:
        """Return fresh state for one stream."""
        stream = self._inner.open_stream(options)
        if not self._makes_room_ahead:
            stream.rest = lambda: None  # type: ignore[method-assign]  # may be left out
        return stream

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise, and note what was held for it."""
        found = self._inner.decode(streams)
        counters = streams[0].cache_counters()
        if counters is not None:
            self._log.take(counters)
        return found


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument("--policy", default="audiokv", help="default: %(default)s")
    parser.add_argument(
        "--budget-slots", type=int, default=300, metavar="N", help="default: %(default)s"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


def figures(run: VirtualRun, log: HeldLog, budget_slots: int) -> dict[str, object]:
    """Return what a run is summed up by."""
    steps = [step.compute_ms for step in run.steps]
    p50, p99 = (float(np.percentile(steps, q)) for q in (50, 99))
    return {
        "minutes": round(run.duration_ms / _MINUTE_MS, 2),
        "n_steps": len(steps),
        "budget_slots": budget_slots,
        "held_slots_at_most": max(log.held_slots, default=0),
        "held_bytes_at_most": max(log.held_bytes, default=0),
        "n_steps_with_more_audio_than_budget": len(log.uses),
        "budget_use": {
            "min": round(min(log.uses, default=0.0), 4),
            "mean": round(float(np.mean(log.uses or [0.0])), 4),
            "max": round(max(log.uses, default=0.0), 4),
        },
        "n_evictions_hot": log.n_hot,
        "n_evictions_ahead": log.n_ahead,
        "step_ms": percentiles(steps),
        "step_p99_over_p50": round(p99 / max(p50, 1e-9), 2),
        "step_ms_p50_by_quarter": [
            round(float(np.median(quarter)), 1) for quarter in np.array_split(steps, 4)
        ],
    }


def complaints(ahead: dict[str, object], log: HeldLog, budget_slots: int) -> list[str]:
    """Return what does not hold."""
    found = []
    if max(log.held_slots, default=0) > budget_slots:
        found.append(f"{max(log.held_slots)} of {budget_slots} slots were held")
    if not log.uses or min(log.uses) < LEAST_USE:
        found.append(f"the budget was used to {min(log.uses, default=0):.0%} only")
    if ahead["n_evictions_hot"]:
        found.append(f"{ahead['n_evictions_hot']} steps had to evict")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen twice, write, judge; return the exit status."""
    args = parse_arguments(arguments)
    origin = provenance()
    english = [one for one in chosen_recordings(args) if one.language == "en"]
    stream = join(english, args.minutes * _MINUTE_MS)
    pcm = np.frombuffer(b"".join(stream.speech.blocks), "<i2")
    samples = pcm.astype(np.float32) / np.float32(32768)
    inner = load_recognizer(args.model, CacheOptions(args.budget_slots, args.policy))
    open_detector = SileroModel.load().open
    one_thread()
    settings = {"model": args.model, "policy": args.policy}
    path = args.out / "long_stream.json"
    results: dict[str, dict[str, object]] = {}
    logs: dict[str, HeldLog] = {}
    for name in ("ahead", "not ahead"):
        tell(f"{args.minutes:g} min, room made {name}")
        log = logs[name] = HeldLog()
        watched = Watched(inner, log, makes_room_ahead=name == "ahead")
        run = VirtualListener(watched, open_detector).listen(samples, "en")
        results[name] = figures(run, log, args.budget_slots)
        print(name, results[name])
        # Written after each run: it takes a while, and one alone is worth keeping.
        path = write_results("long_stream", {"settings": settings, **results}, origin, args.out)
    plot(logs, args.budget_slots, path.with_suffix(".png"))
    found = complaints(results["ahead"], logs["ahead"], args.budget_slots)
    for complaint in found:
        print("NOT MET ", complaint)
    return 1 if found else 0


def plot(logs: dict[str, HeldLog], budget_slots: int, path: Path) -> None:
    """Draw what was held at every step."""
    figure, axes = plt.subplots(figsize=(9, 3))
    for name, log in logs.items():
        axes.plot(log.held_slots, linewidth=0.5, label=f"room made {name}")
    axes.axhline(budget_slots, color="grey", linestyle=":", label="budget")
    axes.set(xlabel="step", ylabel="held slots", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
