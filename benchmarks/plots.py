"""Plots of what the benchmarks measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.scoring import Summary

SHOWN_MARKS = ((400.0, "p50"), (900.0, "p95"))
COMMIT_MARKS = ((900.0, "p50"),)


def plot_captions(columns: Mapping[str, Summary], path: Path) -> None:
    """Draw how latencies are distributed and how many errors there are, for each column.

    Args:
        columns: Figures by the way of captioning.
        path: The PNG file.
    """
    import matplotlib as mpl  # noqa: PLC0415  only where something is drawn

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  after the backend is chosen

    figure, (shown, committed, wrong) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for name, summary in columns.items():
        _draw_distribution(shown, name, [ms for one in summary.scores for ms in one.shown_ms])
        _draw_distribution(
            committed, name, [ms for one in summary.scores for ms in one.committed_ms]
        )
    _finish_distribution(shown, "First shown after the word's end", SHOWN_MARKS)
    _finish_distribution(committed, "Committed after the word's end", COMMIT_MARKS)
    _draw_errors(wrong, columns)
    handles, labels = shown.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_distribution(axes: Axes, name: str, latencies_ms: Sequence[float]) -> None:
    ordered = np.sort(np.asarray(latencies_ms, dtype=float))
    shares = 100 * np.arange(1, ordered.size + 1) / max(ordered.size, 1)
    axes.step(ordered, shares, where="post", label=name)


def _finish_distribution(axes: Axes, title: str, marks: Sequence[tuple[float, str]]) -> None:
    for limit_ms, name in marks:
        axes.axvline(limit_ms, color="0.6", linestyle=":")
        axes.annotate(
            f"target {name}", (limit_ms, 2), rotation=90, color="0.4", ha="right", fontsize=8
        )
    axes.set(title=title, xlabel="ms", ylabel="words (%)", xlim=(-500, 4000), ylim=(0, 100))
    axes.grid(alpha=0.3)


def _draw_errors(axes: Axes, columns: Mapping[str, Summary]) -> None:
    """Draw errors by language: offline first, then each column."""
    first = next(iter(columns.values()))
    languages = list(first.errors_by_language())
    bars = {"offline": [100 * first.errors_by_language()[one][1].rate for one in languages]}
    for name, summary in columns.items():
        found = summary.errors_by_language()
        bars[name] = [100 * found[one][0].rate if one in found else np.nan for one in languages]
    width = 0.8 / len(bars)
    places = np.arange(len(languages))
    for i, (name, rates) in enumerate(bars.items()):
        colour = "0.7" if name == "offline" else f"C{i - 1}"
        axes.bar(places + (i - (len(bars) - 1) / 2) * width, rates, width, color=colour)
    axes.set_xticks(places, languages)
    axes.set(title="Word errors (zh, ja: characters); grey: offline", ylabel="%")
    axes.set_ylim(0, max(10.0, axes.get_ylim()[1]))
    axes.grid(axis="y", alpha=0.3)
