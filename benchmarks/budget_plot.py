"""Latency budgets as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.budget_parts import Budget

_SMALLEST_SHARE = 0.03  # of the longest bar; what is smaller gets no figure
_NO_FIGURE_FROM = 4.0  # times the shortest bar: then bars are drawn as shares of themselves


def plot_budgets(budgets: Sequence[Budget], path: Path) -> None:
    """Draw one bar a budget, its parts in the order in which they happen.

    A device that takes several times as long as another would hide it: then each bar is drawn in
    per cent of its own sum. What a model saves by knowing words early stands left of 0.

    Args:
        budgets: At least one.
        path: The PNG file.
    """
    import matplotlib as mpl  # noqa: PLC0415  only where something is drawn

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415  after the backend is chosen

    sums = [budget.typical_ms for budget in budgets]
    is_relative = max(sums) > _NO_FIGURE_FROM * min(sums)
    names = list(
        dict.fromkeys(p.name for budget in budgets for p in budget.parts if p.is_on_the_way)
    )
    colours = mpl.colormaps["tab20"]
    figure, axes = plt.subplots(figsize=(12, 1.6 + 1.1 * len(budgets)), layout="constrained")
    drawn: set[str] = set()
    for row, budget in enumerate(budgets):
        scale = 100 / budget.typical_ms if is_relative else 1.0
        longest = 100.0 if is_relative else max(sums)
        left, early = 0.0, 0.0
        for part in (one for one in budget.parts if one.is_on_the_way):
            width = part.typical_ms * scale
            number = names.index(part.name)
            start = early if width < 0 else left
            axes.barh(
                row,
                width,
                left=start,
                color=colours(number % 20),
                hatch="//" if number >= 20 else None,  # noqa: PLR2004  colours of the map
                label=None if part.name in drawn else part.name,
            )
            if abs(width) > _SMALLEST_SHARE * longest:
                figure_ms = f"{part.typical_ms:.0f}"
                axes.text(start + width / 2, row, figure_ms, ha="center", va="center")
            drawn.add(part.name)
            if width < 0:
                early += width
            else:
                left += width
    axes.set_yticks(
        range(len(budgets)),
        [f"{b.model}\n{b.device}\n{b.typical_ms:.0f} ms" for b in budgets],
    )
    axes.invert_yaxis()
    axes.set(
        title="From a word's end to its caption (figures in ms)",
        xlabel="per cent of the sum" if is_relative else "ms",
    )
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
