from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.retention_report import findings, markdown, matrix, report
from benchmarks.retention_rows import Table
from tests.benchmarks.retention_making import row

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.retention_rows import Row

CLIPS = [f"clip{i}" for i in range(8)]


def rows() -> list[Row]:
    wrong = {"full": 0, "audiokv": 1, "uniform": 1, "fifo": 6, "oracle": 0}
    return [row(clip, policy, n) for policy, n in wrong.items() for clip in CLIPS]


def test_it_says_where_audiokv_wins_ties_and_loses() -> None:
    found = {one.policy: one for one in findings(rows())}
    assert found["fifo"].verdict == "audiokv wins"
    assert found["uniform"].verdict == "no difference shown"
    assert found["oracle"].verdict == "audiokv loses"
    assert found["audiokv"].verdict == ""
    assert next(one.policy for one in findings(rows())) == "oracle"
    assert found["fifo"].to_full.difference == 60.0
    assert found["fifo"].as_json()["points_over_audiokv"] == [50.0, 50.0, 50.0]


def test_what_is_not_measured_on_every_clip_is_left_out() -> None:
    partial = [one for one in rows() if (one.cell.policy, one.cell.clip) != ("fifo", "clip3")]
    assert "fifo" not in {one.policy for one in findings(partial)}


def test_without_audiokv_there_is_no_verdict_on_it() -> None:
    others = [one for one in rows() if one.cell.policy != "audiokv"]
    assert {one.verdict for one in findings(others)} == {""}
    assert all(one.as_json()["points_over_audiokv"] is None for one in findings(others))


def test_the_table_counts_errors_of_one_seed() -> None:
    lots = [row(clip, "random", 3, seed=seed) for seed in range(3) for clip in CLIPS]
    table = markdown("S", [*rows(), *lots])
    (line,) = [one for one in table.splitlines() if "% | random |" in one]
    assert "| 30.0 % | 24 / 0 / 0 |" in line
    assert "+20.0 [+20.0, +20.0] audiokv wins" in line
    assert "100.0 %, 98.8 %" in line
    assert "8 clips, 80 words. Full cache: 0.0 % errors" in table


def test_the_matrix_marks_what_is_no_chance() -> None:
    lines = matrix(rows()).splitlines()
    assert lines[0] == "| Errors, % | 40 % kept |"
    assert lines[2:] == [
        "| oracle | 0.0 ↓ |",
        "| audiokv | 10.0 |",
        "| uniform | 10.0 |",
        "| fifo | 60.0 ↑ |",
    ]


def test_tables_are_reported_apart_and_the_english_ones_together(tmp_path: Path) -> None:
    for speech in ("english", "noise10", "languages"):
        table = Table.open("S", "tiny", speech, tmp_path)
        table.begin({"date": "now"}, {})
        for one in rows():
            cell = one.cell
            named = row(f"{speech}/{cell.clip}", cell.policy, one.n_errors)
            table.add(named)
    figures = report("S", "tiny", tmp_path)
    assert list(figures) == ["english", "noise10", "languages", "english+noise10"]
    assert len(figures["english"]) == 4  # type: ignore[arg-type]  # a list
    for name in figures:
        image = (tmp_path / f"S_tiny_{name}.png").read_bytes()
        assert image.startswith(b"\x89PNG")
    assert "### S: live session" in (tmp_path / "S_tiny.md").read_text("utf-8")
