from __future__ import annotations

import pytest

from audiokv.streaming.policy.marks import SlotMarks, check_order


def test_slots_in_order_pass() -> None:
    marks = [SlotMarks(0, 20), SlotMarks(0, 20), SlotMarks(20, 30)]
    check_order(marks, None, 0)
    check_order(marks, 0, 20)


@pytest.mark.parametrize(
    ("marks", "last_start_ms", "last_end_ms", "message"),
    [
        ([SlotMarks(20, 10)], None, 0, "cannot end at 10 ms"),
        ([SlotMarks(20, 40)], 30, 40, "comes after a later one"),
        ([SlotMarks(30, 40)], 30, 50, "comes after a later one"),
        ([SlotMarks(20, 40), SlotMarks(0, 60)], None, 0, "comes after a later one"),
    ],
)
def test_slots_out_of_order_are_refused(
    marks: list[SlotMarks], last_start_ms: int | None, last_end_ms: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_order(marks, last_start_ms, last_end_ms)
