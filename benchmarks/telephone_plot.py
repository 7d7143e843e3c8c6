"""Plots of what telephone calls become."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.telephone import HeldCall, Row

_MINUTE_MS = 60_000


def plot_rows(rows: Mapping[str, Row], path: Path) -> None:
    """Draw the errors of each condition.

    Args:
        rows: What each made of the recordings.
        path: The PNG file.
    """
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    names = list(rows)
    axes.barh(names, [100 * rows[name].total.rate for name in names])
    axes.invert_yaxis()
    axes.set(title="Word errors", xlabel="%")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def plot_call(held: HeldCall, path: Path) -> None:
    """Draw lag and memory over a long call, and where nobody spoke.

    Args:
        held: The call.
        path: The PNG file.
    """
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    steps = held.run.steps
    axes.plot(
        [step.due_ms / _MINUTE_MS for step in steps],
        [step.lag_ms for step in steps],
        linewidth=0.5,
        label="lag of a step",
    )
    for hold in held.call.holds:
        axes.axvspan(hold.start_ms / _MINUTE_MS, hold.end_ms / _MINUTE_MS, color="0.9")
    axes.set(title="A long call (grey: hold, ringing, music, keys)", xlabel="min", ylabel="ms")
    axes.set_ylim(0, None)
    memory = axes.twinx()
    memory.plot(
        [at_ms / _MINUTE_MS for at_ms, _ in held.memory.bytes_at],
        [n_bytes / 2**20 for _, n_bytes in held.memory.bytes_at],
        color="C1",
        label="memory",
    )
    memory.set(ylabel="MiB", ylim=(0, None))
    axes.legend(loc="lower left")
    memory.legend(loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)
