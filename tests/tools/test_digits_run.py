from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from tools.digits_run import Schedule, Stage

if TYPE_CHECKING:
    from pathlib import Path


class Line(Stage):
    """Fits a line to points that depend on the step alone."""

    def __init__(self, n_steps: int = 12) -> None:
        torch.manual_seed(0)
        super().__init__("line", nn.Linear(2, 1), Schedule(n_steps, 0.05, 3))

    def loss(self, step: int) -> Tensor:
        points = torch.randn(8, 2, generator=torch.Generator().manual_seed(step))
        difference: Tensor = self.weights(points)[:, 0] - points.sum(-1)
        return difference.pow(2).mean()


def weights(stage: Stage) -> list[float]:
    return [float(value) for one in stage.weights.parameters() for value in one.flatten()]


def test_the_rate_warms_up_stays_and_falls_to_nothing() -> None:
    schedule = Schedule(n_steps=100, peak=0.2, n_warm_up=10)
    assert schedule.rate(0) == pytest.approx(0.02)
    assert {schedule.rate(step) for step in range(9, 71)} == {0.2}
    assert schedule.rate(85) == pytest.approx(0.1)
    assert schedule.rate(100) == 0.0


def test_the_length_changes_nothing_before_the_end() -> None:
    short, long = (Schedule(n_steps=n, peak=0.2, n_warm_up=10) for n in (100, 200))
    assert [short.rate(step) for step in range(71)] == [long.rate(step) for step in range(71)]


def test_a_stage_learns(tmp_path: Path) -> None:
    stage = Line(60)
    before = float(stage.loss(1000).detach())
    stage.run(tmp_path, 100, lambda: "")
    assert float(stage.loss(1000).detach()) < before / 3


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = Line()
    whole.run(tmp_path, 100, lambda: "")
    stopped = Line()
    for _ in range(5):
        stopped.advance()
    (tmp_path / "again").mkdir()
    stopped.save(tmp_path / "again" / "line.pt")
    again = Line()
    again.run(tmp_path / "again", 100, lambda: "")
    assert again.step == 12
    assert weights(again) == pytest.approx(weights(whole), abs=1e-7)


def test_saves_and_reports_at_every_interval_and_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stage = Line()
    modes: list[bool] = []

    def report() -> str:
        modes.append(stage.weights.training)
        return f"saved {(tmp_path / 'line.pt').exists()}"

    stage.run(tmp_path, 5, report)
    assert modes == [False] * 3
    assert stage.weights.training
    said = [record.getMessage() for record in caplog.records]
    assert said == ["line 5 saved True", "line 10 saved True", "line 12 saved True"]


def test_the_loss_is_logged_now_and_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage = Line(50)
    stage.note = "so far"
    stage.run(tmp_path, 100, lambda: "end")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" loss")[0] for line in lines] == ["line 25", "line 50", "line 50 end"]
    assert "so far" in lines[0]
