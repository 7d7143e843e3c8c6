from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.captions import Caption
from audiokv.streaming.speakers import SpeakerTracker
from benchmarks.speaker_turns import PAUSE_MS, Turn, joined, read_turns
from benchmarks.speakers import best_matching, label, mean_by_time, score
from tests.server.doubles import LoudnessDetector

if TYPE_CHECKING:
    from numpy.typing import NDArray

RTTM = """SPEAKER dev00 1 1.440 11.872 <NA> <NA> MEE009 <NA> <NA>
SPEAKER dev01 1 4.304 2.448 <NA> <NA> MEE012 <NA> <NA>
SPEAKER dev00 1 13.152 3.770 <NA> <NA> MEE012 <NA> <NA>
"""


def caption(start_ms: int, end_ms: int, speaker: str | None) -> Caption:
    return Caption(1, 0, 0, True, start_ms, end_ms, "", "en", speaker, ())  # noqa: FBT003


def test_the_turns_of_one_file_are_read() -> None:
    assert read_turns(RTTM, "dev00") == (
        Turn("MEE009", 1_440, 13_312),
        Turn("MEE012", 13_152, 16_922),
    )


def test_turns_say_where_each_voice_is() -> None:
    loud = np.full(16_000, 0.5, np.float32)
    conversation = joined([("a", loud), ("b", loud[:8_000])])
    a, b = conversation.turns
    assert (a, b) == (
        Turn("a", PAUSE_MS, PAUSE_MS + 1_000),
        Turn("b", 2 * PAUSE_MS + 1_000, 2 * PAUSE_MS + 1_500),
    )
    for turn in (a, b):
        inside = conversation.samples[turn.start_ms * 16 : turn.end_ms * 16]
        assert (inside == 0.5).all()
    assert int((conversation.samples == 0.5).sum()) == 24_000


@given(st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), max_size=4))
def test_the_best_matching_is_the_best_of_all(table: list[list[int]]) -> None:
    rows = [*table, *[[0] * 3] * (3 - len(table))]
    best = max(
        sum(rows[row][column] for column, row in enumerate(order))
        for order in permutations(range(len(rows)), 3)
    )
    assert best_matching(table) == best


def test_labels_are_scored_where_one_person_speaks() -> None:
    turns = (Turn("a", 0, 4_000), Turn("b", 3_000, 6_000), Turn("a", 7_000, 8_000))
    said = [
        caption(0, 4_000, "speaker 1"),  # the last second does not count: both speak
        caption(4_000, 6_000, "speaker 2"),
        caption(7_000, 7_500, None),
        caption(7_500, 8_500, "speaker 2"),  # wrong for half a second, then nobody speaks
    ]
    found = score(said, turns)
    assert found["seconds"] == 6
    assert (found["n_speakers"], found["n_labels"]) == (2, 2)
    assert found["right"] == 5 / 6
    assert found["purity"] == 5 / 5.5
    assert abs(found["unlabelled"] - 0.5 / 6) < 1e-9


def test_nothing_said_is_nothing_right() -> None:
    assert score([], [Turn("a", 0, 1_000)])["right"] == 0
    assert score([], [])["seconds"] == 0


def test_means_are_weighted_by_time() -> None:
    short = score([caption(0, 1_000, "x")], [Turn("a", 0, 1_000)])
    long = score([caption(0, 3_000, None)], [Turn("a", 0, 3_000)])
    assert mean_by_time([short, long]) == {
        "n_streams": 2,
        "seconds": 4.0,
        "n_speakers": 1.0,
        "n_labels": 0.5,
        "right": 0.25,
        "purity": 0.25,
        "unlabelled": 0.75,
    }


def test_a_stream_is_labelled_from_end_to_end() -> None:
    def embed(samples: NDArray[np.float32]) -> NDArray[np.float32]:
        is_loud = float(np.abs(samples).mean()) > 0.3
        return np.array([is_loud, not is_loud], np.float32)

    parts = [(who, np.full(40_000, level, np.float32)) for who, level in (("a", 0.5), ("b", 0.1))]
    conversation = joined([*parts, *parts])
    said = label(conversation, LoudnessDetector(), SpeakerTracker(embed))
    assert [c.speaker for c in said] == ["speaker 1", "speaker 2"] * 2
    found = score(said, conversation.turns)
    assert found["right"] == 1
    assert found["seconds"] > 8
