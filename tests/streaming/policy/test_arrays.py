from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.arrays import NO_SLOTS, slots_for


@given(st.integers(0, 100_000), st.integers(1, 500))
def test_slots_cover_the_window_with_none_to_spare(window_ms: int, slot_ms: int) -> None:
    n_slots = slots_for(window_ms, slot_ms)
    assert n_slots * slot_ms >= window_ms
    assert n_slots == 1 or (n_slots - 1) * slot_ms < window_ms


@pytest.mark.parametrize(("window_ms", "slot_ms"), [(-1, 20), (10, 0)])
def test_windows_that_mean_nothing_are_refused(window_ms: int, slot_ms: int) -> None:
    with pytest.raises(ValueError, match=f"{window_ms} ms"):
        slots_for(window_ms, slot_ms)


def test_the_empty_choice_cannot_be_changed() -> None:
    assert len(NO_SLOTS) == 0
    assert not NO_SLOTS.flags.writeable
