"""The plot of a long stream of digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from benchmarks.digit_figures import part_length_ms, parts
from benchmarks.digit_hour import MINUTE_MS

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.digit_hour import LongRun
    from benchmarks.measures import Errors


def plot_digits(run: LongRun, offline: Sequence[Errors], path: Path) -> None:
    """Draw error, step time, held slots and memory over the minutes of a stream.

    Args:
        run: The run.
        offline: Errors of each string, decoded at once.
        path: The PNG file.
    """
    log = run.log
    n = log.n_steps
    at_min = log.at_ms[:n] / MINUTE_MS
    figure, (wrong, cost, held, memory) = plt.subplots(
        4, 1, figsize=(9, 9), sharex=True, layout="constrained"
    )
    cut = parts(run, offline, part_length_ms(run))
    edges = [one.from_ms / MINUTE_MS for one in cut] + [run.stream.duration_ms / MINUTE_MS]
    for label, rates in (
        ("live, under the budget", [100 * one.errors.rate for one in cut]),
        ("offline, string by string", [100 * one.offline.rate for one in cut]),
    ):
        wrong.stairs(rates, edges, label=label)
    wrong.set(ylabel="digits wrong (%)", ylim=(0, None))
    wrong.legend()
    cost.plot(at_min, log.compute_ms[:n], ".", markersize=1, alpha=0.4)
    for percent in (50, 99):
        figures = [float(np.percentile(log.compute_ms[one.steps], percent)) for one in cut]
        cost.stairs(figures, edges, color="black", label=f"p{percent}")
    cost.set(ylabel="step, CPU (ms)", yscale="log")
    held.plot(at_min, log.held_slots[:n], linewidth=0.4)
    held.axhline(run.budget_slots, color="grey", linestyle=":", label="budget")
    for moved in at_min[1:][np.diff(log.n_reanchors[:n]) > 0]:
        held.axvline(moved, color="C1", linewidth=0.8)
    held.set(ylabel="held slots", ylim=(0, None))
    held.legend()
    memory.plot(at_min, log.rss_bytes[:n] / 1e6)
    memory.set(ylabel="memory (MB)", xlabel="minute", ylim=(0, None))
    figure.savefig(path, dpi=120)
    plt.close(figure)
