from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks import latency_budget
from benchmarks.budget_parts import Budget, Check, Known, Part
from benchmarks.latency_budget import chosen_device, is_whole, main, parse_arguments

if TYPE_CHECKING:
    from pathlib import Path

CPU = torch.device("cpu")


def budget(measured_ms: float) -> Budget:
    parts = (Part("wait", 100.0, 200.0, Known.RULE), Part("work", 50.0, 60.0, Known.MEASURED))
    return Budget("model", "CPU", parts, checks=(Check("all of it", 150.0, measured_ms),))


@pytest.mark.parametrize(("measured_ms", "status"), [(155.0, 0), (250.0, 1), (100.0, 1)])
def test_the_exit_status_tells_of_a_sum_that_is_far_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured_ms: float, status: int
) -> None:
    monkeypatch.setattr(latency_budget, "find_budgets", lambda _: [budget(measured_ms)])
    assert main(["--out", str(tmp_path)]) == status
    found = json.loads((tmp_path / "latency_budget.json").read_text("utf-8"))
    assert found["budgets"][0]["typical_ms"] == 150.0
    assert found["settings"]["repeats"] == 5
    assert (tmp_path / "latency_budget.png").exists()


def test_models_are_built_whole_only_where_that_is_asked_for_or_fits() -> None:
    assert is_whole("whole", CPU, 10**15)
    assert not is_whole("kinds", CPU, 1)
    assert not is_whole("auto", CPU, 1)


def test_the_memory_of_a_gpu_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 2000))
    gpu = torch.device("cuda")
    assert is_whole("auto", gpu, 600)
    assert not is_whole("auto", gpu, 800)


def test_a_device_that_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="There is no cuda"):
        chosen_device(parse_arguments(["--device", "cuda"]))
    assert chosen_device(parse_arguments([])) == CPU
