from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu import (
    Bench,
    Case,
    compiled_cases,
    config_of,
    main,
    parse_arguments,
    plain_cases,
    sessions,
    step_ms,
    summary,
)
from benchmarks.gpu_passes import Mode, SharedPasses, StepSize

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from benchmarks.budget_layers import DeviceClock

TINY = ["--device", "cpu", "--shape", "tiny", "--modes", "eager", "--repeats", "1"]
PARTS = {"encode", "load", "read", "keep", "tail", "token"}


def test_it_runs_on_a_processor_and_writes_what_it_measured(tmp_path: Path) -> None:
    arguments = [*TINY, "--streams", "1", "3", "--budget-slots", "40", "--out", str(tmp_path)]
    assert main(arguments) == 0
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert written["benchmark"] == "gpu"
    assert written["device"] == {"name": "cpu"}
    assert [row["n_streams"] for row in written["rows"]] == [1, 3]
    for row in written["rows"]:
        assert set(row["parts_ms"]) == PARTS
        assert all(value > 0 for value in row["parts_ms"].values())
        assert row["session_bytes"] > 0
    (carried,) = written["sessions"]
    assert (carried["shape"], carried["budget_slots"], carried["mode"]) == ("tiny", 40, "eager")
    assert carried["n_sessions"] >= 0


def test_without_a_gpu_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 1
    said = capsys.readouterr().err
    assert "no GPU 'cuda'" in said
    assert "--device cpu --shape tiny" in said
    assert main(["--device", "cpu", "--shape", "tiny"]) == 1
    assert "captured" in capsys.readouterr().err


def test_nothing_is_begun_when_time_is_up(tmp_path: Path) -> None:
    wanted = parse_arguments(
        [*TINY, "--streams", "1", "--budget-slots", "40", "--max-minutes", "0"]
    )
    wanted.out = tmp_path
    written = json.loads(Bench(wanted).run().read_text())
    assert [row["not_run"] for row in written["rows"]] == ["there was no time left"]
    assert written["sessions"] == []


def test_a_case_that_fails_is_told_and_the_next_one_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = SharedPasses.parts_ms

    def failing(self: SharedPasses, clock: DeviceClock, repeats: int) -> dict[str, list[float]]:
        if len(self._prefixes) == 1:
            raise torch.OutOfMemoryError("no memory")
        return inner(self, clock, repeats)

    monkeypatch.setattr(SharedPasses, "parts_ms", failing)
    wanted = parse_arguments([*TINY, "--streams", "1", "2", "--budget-slots", "40"])
    wanted.out = tmp_path
    first, second = json.loads(Bench(wanted).run().read_text())["rows"]
    assert first["not_run"] == "OutOfMemoryError: no memory"
    assert "step_compute_ms" in second


def test_the_published_sizes_are_measured_by_default() -> None:
    wanted = parse_arguments([])
    assert wanted.device == "cuda"
    assert list(wanted.shape) == ["E2B", "E4B"]
    assert sorted(wanted.streams) == [1, 2, 4, 8, 16, 32, 64]
    assert sorted(wanted.budget_slots) == [256, 1024, 4096]
    listed = plain_cases(wanted, "E2B")
    assert len(listed) == 7 * 3 * 2
    assert listed[0] == Case("E2B", 1024, 16, Mode.EAGER)
    assert {case.mode for case in listed} == {Mode.EAGER, Mode.GRAPH}
    assert compiled_cases(wanted, "E4B") == []
    wanted = parse_arguments(["--modes", *Mode])
    assert compiled_cases(wanted, "E4B") == [
        Case("E4B", 1024, 16, Mode.COMPILED),
        Case("E4B", 1024, 1, Mode.COMPILED),
    ]
    few = parse_arguments(["--modes", "compiled", "--streams", "3", "--budget-slots", "40"])
    assert plain_cases(few, "E2B") == []
    assert compiled_cases(few, "E2B") == [Case("E2B", 40, 3, Mode.COMPILED)]
    assert compiled_cases(parse_arguments(["--modes", "graph"]), "E2B") == []
    config = config_of("E2B").text_config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (30, 2048, 262_400)


def test_a_step_loads_twice_and_reads_each_token_alone() -> None:
    size = StepSize(step_ms=100, token_passes=3)
    parts = {"encode": 1.0, "load": 2.0, "read": 4.0, "keep": 8.0, "tail": 16.0, "token": 32.0}
    assert step_ms(parts, size) == 1 + 2 * 2 + 4 + 8 + 16 + 3 * 32
    found: dict[str, Any] = summary(
        {name: [value, 99.0, 0.0] for name, value in parts.items()}, size
    )
    assert found["step_compute_ms"] == 129
    assert found["first_shown_ms"] == {"mean": 179.0, "worst": 229.0}
    assert not found["is_in_time"]


def test_streams_carried_are_bound_by_time_or_memory() -> None:
    rows = [
        {"n_streams": 1, "step_compute_ms": 10.0, "session_bytes": 50},
        {"n_streams": 8, "step_compute_ms": 20.0, "session_bytes": 50},
    ]
    assert sessions(rows, 200, None) == {
        "n_sessions": 64,  # eight batches of 20 ms in 160
        "batch": 8,
        "bound_by": "time",
        "first_shown_worst_ms": 360.0,
    }
    bound = sessions(rows, 200, 1_000)
    assert (bound["n_sessions"], bound["bound_by"]) == (10, "memory")
