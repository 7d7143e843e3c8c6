from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.budget_parts import Budget, Known, Part
from benchmarks.budget_plot import plot_budgets

if TYPE_CHECKING:
    from pathlib import Path


def budget(model: str, work_ms: float) -> Budget:
    parts = (
        Part("wait", 100.0, 200.0, Known.RULE),
        Part("known early", -40.0, 0.0, Known.MEASURED),
        Part("work", work_ms, 2 * work_ms, Known.MEASURED),
        Part("beside", 9.0, 9.0, Known.MEASURED, is_on_the_way=False),
    )
    return Budget(model, "CPU", parts)


@pytest.mark.parametrize("work_ms", [50.0, 5000.0])
def test_budgets_are_drawn_also_where_one_is_far_longer(tmp_path: Path, work_ms: float) -> None:
    path = tmp_path / "budget.png"
    plot_budgets([budget("small", 40.0), budget("large", work_ms)], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
