from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.measures import final_text
from benchmarks.retention_held import BudgetBrokenError, CacheLog, CacheStep
from benchmarks.retention_policies import variants
from benchmarks.retention_rows import Cell, Table
from benchmarks.retention_speech import Clip
from benchmarks.retention_streaming import CacheBound, DetectOnce, StreamingRunner, with_tail
from benchmarks.virtual_stream import VirtualListener
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer, speech

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from audiokv.models.base import Hypothesis, RecognizerInfo, RecognizerStream, StreamOptions
    from benchmarks.retention_rows import Row

SLOT_BYTES = 4
SAMPLES = np.frombuffer(speech(4, seconds=3.0), "<i2").astype(np.float32) / np.float32(32_768)
CLIPS = [Clip(name, name, "en", "en", "some words", SAMPLES) for name in "ab"]


@dataclass
class ScriptedModel:
    """Implements ``BoundedModel``; holds 10 slots more at each step, as far as its bound allows."""

    excess_slots: int = 0
    slot_bytes: int = SLOT_BYTES
    n_together: int = 2
    asked: list[tuple[str, int]] = field(default_factory=list)
    n_decoded_together: list[int] = field(default_factory=list)
    n_forgotten: int = 0

    def __post_init__(self) -> None:
        self._recognizer = ScriptedRecognizer()
        self._opened: dict[int, tuple[RecognizerStream, CacheBound | None, CacheLog]] = {}

    @property
    def info(self) -> RecognizerInfo:
        return self._recognizer.info

    def open_stream(
        self, options: StreamOptions, bound: CacheBound | None, log: CacheLog
    ) -> RecognizerStream:
        if bound is not None:
            self.asked.append((bound.variant.name, bound.budget_slots))
        stream = self._recognizer.open_stream(options)
        self._opened[id(stream)] = stream, bound, log
        return stream

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        self.n_decoded_together.append(len(streams))
        for stream in streams:
            _, bound, log = self._opened[id(stream)]
            present = 10 * (len(log.steps) + 1)
            limit = bound.budget_slots if bound else present
            held = min(present, limit + self.excess_slots)
            log.steps.append(CacheStep(present, held, SLOT_BYTES * held))
        return self._recognizer.decode(streams)

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
    virtual = VirtualListener(ScriptedRecognizer(), LoudnessDetector)
    run_alone = virtual.listen(with_tail(CLIPS[0]), CLIPS[0].told_language)
    assert text == final_text(run_alone.arrivals) != ""
    assert len(log.steps) == len(run_alone.steps)
    rows = run(ScriptedModel(), table, ["uniform"])
    assert {row.text for row in rows} == {text}
    assert log.full_slots == rows[0].held.full_slots


@pytest.mark.parametrize(("n_together", "sizes"), [(1, {1}), (3, {1, 3}), (9, {1, 4})])
def test_as_many_caches_hear_a_clip_side_by_side_as_the_model_wants(
    table: Table, n_together: int, sizes: set[int]
) -> None:
    model = ScriptedModel(n_together=n_together)
    rows = run(model, table, ["uniform", "fifo"])
    assert len(rows) == 2 * (1 + 2 * 2)
    assert set(model.n_decoded_together) == sizes
    assert len({row.text for row in rows}) == 1


class CountingDetector(LoudnessDetector):
    """Says how many chunks it has heard since it was reset, and counts all it was asked."""

    def __init__(self) -> None:
        self.n_heard = 0
        self.n_asked = 0

    def probability(self, samples: NDArray[np.float32]) -> float:
        del samples
        self.n_heard += 1
        self.n_asked += 1
        return self.n_heard / 100

    def reset(self) -> None:
        self.n_heard = 0


def test_a_detector_is_asked_once_about_the_same_audio() -> None:
    known: dict[tuple[bytes, bytes], float] = {}
    chunks = [np.full(512, level, np.float32) for level in (0.1, 0.2, 0.1, 0.3)]
    detectors = [CountingDetector(), CountingDetector()]
    first, second = (DetectOnce(detector, known) for detector in detectors)
    judged = [first.probability(chunk) for chunk in chunks]
    assert judged == [0.01, 0.02, 0.03, 0.04]  # the third is not taken for the first
    assert [second.probability(chunk) for chunk in chunks] == judged
    assert [detector.n_asked for detector in detectors] == [4, 0]
    assert second.probability(chunks[0]) == 0.05  # catches up with what it had not heard itself
    assert detectors[1].n_asked == 5
    second.reset()
    assert second.probability(chunks[0]) == 0.01
    assert detectors[1].n_asked == 5
