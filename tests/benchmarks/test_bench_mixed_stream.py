from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.measures import errors
from benchmarks.mixed_stream import Spoken, mix, n_repeats, outcome, words_of_each
from benchmarks.recordings import Recording
from tests.benchmarks.making import arrival, words

if TYPE_CHECKING:
    from benchmarks.mixed_stream import Outcome

ASK = "ask not what your country can do for you"
ASKED = Recording("ask.wav", Path("ask.wav"), "en", ASK)


def become(text: str, alone: str = ASK) -> Outcome:
    return outcome(Spoken(ASKED, 0.0, 1000.0, 300.0), words(text), alone)


def test_the_same_text_is_neither_lost_nor_doubled_nor_looping() -> None:
    same = become("Ask not what your country can do for you.")
    assert (same.is_lost, same.is_doubled, same.is_looping) == (False, False, False)
    assert same.mixed == errors(ASK, ASK, "en")


@pytest.mark.parametrize(
    "text", ["", "ask not what your", "demande pas que ton pays peut faire pour toi"]
)
def test_a_sentence_mostly_missing_is_lost(text: str) -> None:
    assert become(text).is_lost
    assert not become(text).is_doubled


def test_a_sentence_said_twice_is_doubled() -> None:
    assert become(f"{ASK} {ASK}").is_doubled
    assert become(f"{ASK} what your country can do").is_doubled
    assert not become(f"{ASK} indeed").is_doubled


def test_a_phrase_over_and_over_is_a_loop_unless_it_was_said() -> None:
    assert become(ASK + " for you for you").is_looping
    assert not become("no no no no", alone="no no no no").is_looping
    assert not become(ASK + " for you").is_looping


def test_what_is_not_heard_alone_cannot_be_lost() -> None:
    assert not become("", alone="").is_lost


@pytest.mark.parametrize(
    ("text", "n"),
    [("", 0), ("a", 1), ("a b", 1), ("a a", 2), ("x a b a b a b y", 3), ("a b a a a b", 3)],
)
def test_repeats(text: str, n: int) -> None:
    assert n_repeats(text.split()) == n


def test_words_go_to_the_recording_they_were_said_in() -> None:
    spoken = [Spoken(ASKED, 0.0, 200.0, 0.0), Spoken(ASKED, 400.0, 600.0, 200.0)]
    found = words_of_each(spoken, [arrival(1, "a b c d e f", is_final=True)])
    assert [[w.text for w in one] for one in found] == [["a", "b", "c"], ["d", "e", "f"]]
    assert words_of_each(spoken[:1], []) == [[]]


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    found = []
    for i in range(3):
        path = tmp_path / f"{i}.wav"
        soundfile.write(path, np.full(1600 * (i + 1), 0.5, np.float32), 16_000)
        found.append(Recording(path.name, path, "en", "text"))
    return found


def test_a_mix_says_where_each_recording_stands(recordings: list[Recording]) -> None:
    stream = mix(recordings, 60_000, seed=3)
    for one in stream.spoken:
        part = stream.samples[int(one.start_ms * 16) : int(one.end_ms * 16)]
        assert np.allclose(part, 0.5, atol=1e-3)
        assert 300 <= one.pause_ms <= 30_000
        before = stream.samples[int((one.start_ms - one.pause_ms) * 16) : int(one.start_ms * 16)]
        assert np.abs(before).max() < 0.01
    assert stream.samples.size >= 60_000 * 16
    assert stream.samples.size - 2_000 * 16 == stream.spoken[-1].end_ms * 16
    assert {one.recording.name for one in stream.spoken[:3]} == {"0.wav", "1.wav", "2.wav"}


def test_the_seed_decides(recordings: list[Recording]) -> None:
    first, same, other = (mix(recordings, 20_000, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.samples, same.samples)
    assert first.spoken != other.spoken
