from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.client.cache_line import NOTHING_BOUND, CacheLine, cache_parts, shown_bytes
from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)

COUNTERS = CacheCounters(
    policy="audiokv",
    seen_slots=655,
    held_slots=142,
    budget_slots=150,
    pools=PoolSlots(base=90, buffer=44, reserve=8),
    n_evictions=Evictions(0, 31, 2),
    held_bytes=872_448,
    left_slots=LeftSlots(forced=0, ahead=489, expired=24, shared=0),
    chosen_slots=ChosenSlots(committed=402, silence=61, speech=26),
)
WHOLE = (
    "cache 142/150 slots of 655 seen, 872 kB · 90 base, 44 buffer, 8 reserve · "
    "left 513: 489 ahead, 24 expired · they were 402 committed, 61 silence, 26 speech"
)


def line_of(counters: CacheCounters | None) -> CacheLine:
    line = CacheLine()
    line.hear(counters)
    return line


def test_it_says_what_is_held_what_left_and_why() -> None:
    assert line_of(COUNTERS).text(200) == WHOLE


@given(st.integers(1, 200))
def test_what_does_not_fit_is_left_out_from_the_end_in_whole_parts(columns: int) -> None:
    text = line_of(COUNTERS).text(columns)
    parts = cache_parts(COUNTERS)
    assert len(text) <= columns
    if columns >= len(parts[0]):
        assert text in {" · ".join(parts[:n]) for n in range(1, len(parts) + 1)}
    else:
        assert text == parts[0][:columns]


def test_what_has_not_happened_is_not_told() -> None:
    nothing_left = replace(
        COUNTERS,
        seen_slots=142,
        left_slots=LeftSlots(0, 0, 0, 0),
        chosen_slots=ChosenSlots(0, 0, 0),
    )
    assert line_of(nothing_left).text(200) == (
        "cache 142/150 slots of 142 seen, 872 kB · 90 base, 44 buffer, 8 reserve"
    )
    empty = replace(nothing_left, seen_slots=0, held_slots=0, pools=PoolSlots(0, 0, 0))
    assert line_of(empty).text(200).endswith(" · nothing")


def test_a_server_without_a_budget_is_told_apart_from_no_answer_yet() -> None:
    line = CacheLine()
    assert line.text(80) == ""
    line.hear(None)
    assert line.text(80) == NOTHING_BOUND
    assert line.text(9) == NOTHING_BOUND[:9]
    line.hear(COUNTERS)
    assert line.text(200) == WHOLE
    line.clear()
    assert line.text(80) == ""


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (9_960, "10 kB"),
        (872_448, "872 kB"),
        (999_700, "1.0 MB"),
        (5_400_000_000, "5.4 GB"),
        (5_400_000_000_000, "5400 GB"),
    ],
)
def test_sizes_are_short(n_bytes: int, text: str) -> None:
    assert shown_bytes(n_bytes) == text
