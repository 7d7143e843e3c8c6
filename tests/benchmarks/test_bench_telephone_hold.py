from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.streaming.captions import Word
from benchmarks.recordings import Recording
from benchmarks.telephone_hold import (
    HOLD_SOUNDS,
    KEYS_PRESSED,
    Hold,
    LongCall,
    hold_of,
    long_call,
    outcomes,
    words_in_holds,
)
from tests.benchmarks.making import arrival

if TYPE_CHECKING:
    from pathlib import Path

HOLDS = (Hold("hold tone", 1_000, 3_000), Hold("music-like", 5_000, 9_000))


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    found = []
    for n in range(3):
        path = tmp_path / f"{n}.wav"
        soundfile.write(path, np.full(16_000, 0.1 * (n + 1)), 16_000)
        found.append(Recording(f"{n}", path, "en", "one two"))
    return found


def test_a_call_has_recordings_and_every_kind_of_hold_at_their_places(
    recordings: list[Recording],
) -> None:
    call = long_call(recordings, 300_000, seed=4)
    samples = call.stream.samples
    assert 300_000 <= len(samples) / 16 < 360_000
    assert {hold.name for hold in call.holds} == {*HOLD_SOUNDS, KEYS_PRESSED}
    for one in call.stream.spoken:
        part = samples[int(16 * one.start_ms) : int(16 * one.end_ms)]
        assert part == pytest.approx(0.1 * (int(one.recording.name) + 1), abs=1e-3)
    names = [one.recording.name for one in call.stream.spoken]
    assert sorted(names[:3]) == sorted(names[3:6]) == ["0", "1", "2"]
    for hold in call.holds:
        part = samples[int(16 * hold.start_ms) : int(16 * hold.end_ms)]
        assert (np.abs(part).max() > 0.05) == (hold.name != "digital silence")
    edges = sorted(
        [(one.start_ms, one.end_ms) for one in call.stream.spoken]
        + [(hold.start_ms, hold.end_ms) for hold in call.holds]
    )
    assert all(b[0] - a[1] >= 700 for a, b in pairwise(edges))


def test_another_seed_is_another_call(recordings: list[Recording]) -> None:
    first, second = (long_call(recordings, 60_000, seed).stream.samples for seed in (1, 2))
    assert len(first) != len(second)


@pytest.mark.parametrize(
    ("middle_ms", "name"),
    [
        (1_199, None),
        (1_200, "hold tone"),
        (2_800, "hold tone"),
        (2_801, None),
        (6_000, "music-like"),
    ],
)
def test_a_word_lies_in_a_hold_part_where_it_is_past_the_edge(
    middle_ms: int, name: str | None
) -> None:
    hold = hold_of(Word("x", middle_ms - 50, middle_ms + 50, 0.9), HOLDS)
    assert (None if hold is None else hold.name) == name


def test_words_in_hold_parts_are_found_and_what_was_shown_counts_too() -> None:
    holds = (Hold("ringing tone", 0, 10_000),)
    arrivals = [
        arrival(300, "you are"),
        arrival(400, "you are here now"),
        arrival(500, "you are here", is_final=True),
    ]
    assert words_in_holds(arrivals, holds) == ([("here", "ringing tone")], 2)
    assert words_in_holds(arrivals, ()) == ([], 0)


def test_words_in_hold_parts_are_no_words_of_a_recording(recordings: list[Recording]) -> None:
    call = long_call(recordings[:1], 1_000, seed=1)
    (spoken,) = call.stream.spoken
    near = Hold("hold tone", spoken.end_ms, spoken.end_ms + 60_000)
    said = arrival(9_000, "one two three four five six", is_final=True)
    shifted = [
        Word(w.text, int(spoken.end_ms) - 150 + 300 * n, int(spoken.end_ms) - 50 + 300 * n, 0.9)
        for n, w in enumerate(said.caption.words)
    ]
    held = LongCall(call.stream, (near,))
    caption = replace(said.caption, words=tuple(shifted))
    (one,) = outcomes(held, [replace(said, caption=caption)], {"0": "one two"})
    assert one.text == "one"
