from __future__ import annotations

import json

import pytest

from benchmarks.budget_parts import Budget, Check, Known, Part, measured_part

WAIT = Part("wait", 95.0, 190.0, Known.RULE, "for the step")
WORK = Part("work", 40.0, 60.0, Known.MEASURED)
BESIDE = Part("eviction", 7.0, 9.0, Known.MEASURED, is_on_the_way=False)
COMMIT = Part("commit", 250.0, 400.0, Known.RULE)


def budget() -> Budget:
    check = Check("what was measured", 135.0, 150.0)
    return Budget("model", "CPU", (WAIT, WORK, BESIDE), (COMMIT,), (check,), ("a note",))


def test_only_what_a_word_waits_for_is_added_up() -> None:
    assert budget().typical_ms == 135.0
    assert budget().worst_ms == 250.0


def test_the_table_names_every_part_the_sum_and_the_check() -> None:
    lines = budget().table().splitlines()
    assert lines[0] == "model on CPU"
    assert "by the program's own rules; for the step" in lines[2]
    assert lines[3].split()[:3] == ["work", "40.0", "60.0"]
    assert lines[4].endswith("(beside: not in the sum)")
    assert lines[5].split() == ["sum", "135.0", "250.0"]
    assert lines[6].endswith("(after the caption)")
    assert "p50 150 ms, the sum of the same parts 135 ms (-10 %)" in lines[7]
    assert lines[8] == "note: a note"


def test_the_results_file_gets_the_same() -> None:
    found = json.loads(json.dumps(budget().as_json()))
    assert found["typical_ms"] == 135.0
    assert [part["part"] for part in found["parts"]] == ["wait", "work", "eviction"]
    assert [part["is_on_the_way"] for part in found["parts"]] == [True, True, False]
    assert found["until_committed"][0]["typical_ms"] == 250.0
    assert found["checks"][0]["budget_over_measured_percent"] == -10.0
    assert found["notes"] == ["a note"]


def test_a_measured_part_is_median_and_95th_percentile() -> None:
    part = measured_part("mel", list(range(101)), "of one step")
    assert (part.typical_ms, part.worst_ms) == (50.0, 95.0)
    assert (part.known, part.note) == (Known.MEASURED, "of one step")


def test_a_check_tells_how_far_off_the_sum_is() -> None:
    assert Check("", 110.0, 100.0).is_over_percent == pytest.approx(10.0)
