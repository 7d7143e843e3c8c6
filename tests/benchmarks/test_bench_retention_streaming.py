from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.retention_held import BudgetBrokenError, CacheLog, CacheStep
from benchmarks.retention_policies import variants
from benchmarks.retention_rows import Cell, Table
from benchmarks.retention_speech import Clip
from benchmarks.retention_streaming import CacheBound, StreamingRunner
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer, speech

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.models.base import Hypothesis, RecognizerStream
    from benchmarks.retention_rows import Row

SLOT_BYTES = 4
SAMPLES = np.frombuffer(speech(4, seconds=3.0), "<i2").astype(np.float32) / np.float32(32_768)
CLIPS = [Clip(name, name, "en", "en", "some words", SAMPLES) for name in "ab"]


class LoggedRecognizer(ScriptedRecognizer):
    """Holds 10 slots more at each step, as far as its bound allows."""

    def __init__(self, model: ScriptedModel, bound: CacheBound | None, log: CacheLog) -> None:
        super().__init__()
        self._model = model
        self._bound = bound
        self._log = log

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        present = 10 * (len(self._log.steps) + 1)
        limit = self._bound.budget_slots if self._bound else present
        held = min(present, limit + self._model.excess_slots)
        self._log.steps.append(CacheStep(present, held, SLOT_BYTES * held))
        return super().decode(streams)


@dataclass
class ScriptedModel:
    """Implements ``BoundedModel``."""

    excess_slots: int = 0
    slot_bytes: int = SLOT_BYTES
    asked: list[tuple[str, int]] = field(default_factory=list)
    n_forgotten: int = 0

    def recognizer(self, bound: CacheBound | None, log: CacheLog) -> LoggedRecognizer:
        if bound is not None:
            self.asked.append((bound.variant.name, bound.budget_slots))
        return LoggedRecognizer(self, bound, log)

    def forget_audio(self) -> None:
        self.n_forgotten += 1


def run(
    model: ScriptedModel, table: Table, names: Sequence[str], again: Sequence[str] = ()
) -> list[Row]:
    runner = StreamingRunner(model, LoudnessDetector)
    return list(runner.rows(CLIPS, variants(names, 2), [40, 20], table, again))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    opened = Table.open("S", "m", "s", tmp_path)
    opened.begin({"date": "now"}, {})
    return opened


def test_budgets_are_shares_of_the_longest_window_of_the_full_cache(table: Table) -> None:
    model = ScriptedModel()
    rows = run(model, table, ["uniform", "random", "full"])
    assert len(rows) == 2 * (1 + 2 * (1 + 2))
    full = table.rows[Cell("a", "full", 0, 100)]
    n_steps = full.held.n_steps
    assert full.held.full_slots == 10 * n_steps
    budgets = {budget for name, budget in model.asked if name != "full"}
    assert budgets == {round(10 * n_steps * 0.4), round(10 * n_steps * 0.2)}
    some = table.rows[Cell("b", "random", 1, 20)].held
    assert some.max_bytes == some.budget_bytes == SLOT_BYTES * round(2 * n_steps)
    assert some.mean_full_bytes == some.budget_bytes


def test_what_is_there_is_not_measured_again_unless_asked(table: Table) -> None:
    run(ScriptedModel(), table, ["uniform"])
    model = ScriptedModel()
    assert run(model, table, ["uniform"]) == []
    assert model.asked == []
    table.begin({"date": "later"}, {})
    assert {row.cell.policy for row in run(model, table, ["uniform"], ["uniform"])} == {"uniform"}


def test_the_audio_of_a_clip_is_forgotten_after_it(table: Table) -> None:
    model = ScriptedModel()
    run(model, table, ["uniform"])
    assert model.n_forgotten == len(CLIPS)


def test_a_cache_over_its_budget_ends_the_run(table: Table) -> None:
    with pytest.raises(BudgetBrokenError, match="uniform on a"):
        run(ScriptedModel(excess_slots=1), table, ["uniform"])


def test_the_captions_are_those_of_a_session_without_a_bound(table: Table) -> None:
    runner = StreamingRunner(ScriptedModel(), LoudnessDetector)
    text, log = runner.hear(CLIPS[0], None)
    assert text.split()
    rows = run(ScriptedModel(), table, ["uniform"])
    assert {row.text for row in rows} == {text}
    assert log.full_slots == rows[0].held.full_slots
