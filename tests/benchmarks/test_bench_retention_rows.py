from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.retention_rows import Cell, Row, Table, is_looping
from benchmarks.retention_speech import Clip
from tests.benchmarks.retention_making import HELD, row

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = {"date": "2024-06-07", "commit": "abc"}
CLIP = Clip("a", "g", "en", "en", "one two three", np.zeros(16_000, np.float32))


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = Table.open("S", "some/folder/tiny", "english", tmp_path)
    table.begin(ORIGIN, {"dtype": "float32"})
    table.add(row("a", "uniform", 2))
    again = Table.open("S", "tiny", "english", tmp_path)
    assert again.rows == table.rows
    assert again.rows[Cell("a", "uniform", 0, 40)].n_errors == 2
    (run,) = again.runs.values()
    assert run["origin"] == ORIGIN
    assert again.rows[Cell("a", "uniform", 0, 40)].run in again.runs


def test_tables_of_other_modes_models_and_speech_are_apart(tmp_path: Path) -> None:
    names = {
        Table.open(mode, model, speech, tmp_path).path
        for mode in "PS"
        for model in ("base", "tiny")
        for speech in ("english", "digits")
    }
    assert len(names) == 8


def test_two_runs_fill_one_table(tmp_path: Path) -> None:
    first, second = (Table.open("P", "m", "s", tmp_path) for _ in range(2))
    first.begin(ORIGIN, {})
    second.begin(ORIGIN, {})
    first.add(row("a", "fifo", 1))
    second.add(row("a", "lru", 2))
    first.add(row("b", "fifo", 3))
    assert sorted(r.n_errors for r in Table.open("P", "m", "s", tmp_path).rows.values()) == [
        1,
        2,
        3,
    ]


def test_only_what_is_missing_is_measured_and_the_last_measurement_counts(tmp_path: Path) -> None:
    table = Table.open("S", "m", "s", tmp_path)
    table.begin(ORIGIN, {})
    table.add(row("a", "fifo", 1))
    cells = [Cell("a", "fifo", 0, 40), Cell("a", "fifo", 0, 20)]
    later = Table.open("S", "m", "s", tmp_path)
    later.begin({"date": "later"}, {})
    assert later.missing(cells) == cells[1:]
    assert later.missing(cells, again=["fifo"]) == cells
    later.add(row("a", "fifo", 7))
    assert later.missing(cells, again=["fifo"]) == cells[1:]
    assert Table.open("S", "m", "s", tmp_path).rows[cells[0]].n_errors == 7


def test_what_was_heard_is_scored() -> None:
    scored = Row.of(CLIP, Cell("a", "fifo", 0, 40), "One, too three four", HELD)
    assert (scored.substitutions, scored.deletions, scored.insertions) == (1, 0, 1)
    assert (scored.n_reference, scored.cluster, scored.is_collapsed) == (3, "g", False)


@pytest.mark.parametrize(
    ("said", "heard", "expected"),
    [
        ("a b c d", "a b c d", False),
        ("a b c d", "a b c d a b c d", False),
        ("a b c d", "a b c d a b c d a b c d", True),
        ("a b c d a b c d a b c d", "a b c d a b c d a b c d", False),
        ("x", "no no no no no no", True),
        ("", "", False),
    ],
)
def test_a_phrase_again_and_again_is_a_loop(said: str, heard: str, *, expected: bool) -> None:
    assert is_looping(said, heard, "en") is expected


def test_collapses_are_more_errors_than_words_loops_and_cut_texts() -> None:
    good = row("a", "fifo", 9)
    assert not good.is_collapsed
    assert not row("a", "fifo", 10).is_collapsed
    assert row("a", "fifo", 11).is_collapsed
    assert replace(good, is_looping=True).is_collapsed
    assert replace(good, held=replace(HELD, n_cut=3)).is_collapsed
    assert not replace(good, held=replace(HELD, n_cut=2)).is_collapsed  # later steps mended it
