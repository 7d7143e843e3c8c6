from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from audiokv.streaming.cache_message import read_counters
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import Fields

wholes = st.integers(0, 2**53 - 1)
counters = st.builds(
    CacheCounters,
    st.text(max_size=64),
    wholes,
    wholes,
    wholes,
    st.builds(PoolSlots, wholes, wholes, wholes),
    st.builds(Evictions, wholes, wholes, wholes),
    wholes,
    st.builds(LeftSlots, wholes, wholes, wholes, wholes),
    st.builds(ChosenSlots, wholes, wholes, wholes),
)
SOME = CacheCounters(
    "uniform", 9, 5, 6, PoolSlots(3, 1, 1), Evictions(0, 2, 1), 5_120,
    LeftSlots(0, 3, 1, 0), ChosenSlots(1, 2, 0),
)  # fmt: skip
PARTS = ["pools", "n_evictions", "left_slots", "chosen_slots"]


@given(counters)
def test_counters_come_back_as_they_went(sent: CacheCounters) -> None:
    assert read_counters(Fields("cache", asdict(sent))) == sent


def test_nothing_is_nothing() -> None:
    assert read_counters(None) is None


def changed(part: str, **changes: object) -> dict[str, Any]:
    values = asdict(SOME)
    values[part] |= changes
    return values


@pytest.mark.parametrize("part", PARTS)
def test_faults_of_each_part_are_found(part: str) -> None:
    missing = asdict(SOME)
    del missing[part]
    name = next(iter(asdict(SOME)[part]))
    for values, code in [
        (missing, "missing_field"),
        (changed(part, **{name: -1}), "bad_field"),
        (changed(part, **{name: 0.5}), "bad_field"),
        (changed(part, colour=1), "unknown_field"),
        (asdict(SOME) | {"colour": 1}, "unknown_field"),
    ]:
        with pytest.raises(MessageError) as caught:
            read_counters(Fields("cache", values))
        assert caught.value.code == code
