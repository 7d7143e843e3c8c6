from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.streaming.captions import Word
from benchmarks.recordings import Recording
from benchmarks.speech_ends import (
    align_offline,
    aligned_ends,
    alignment_errors_ms,
    sounding_end_ms,
)
from tests.server.doubles import ScriptedRecognizer

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sounding(*spans_ms: tuple[int, int], total_ms: int = 1000) -> NDArray[np.float32]:
    chance = np.random.default_rng(0)
    samples = chance.normal(0, 1e-4, total_ms * 16)
    for start, end in spans_ms:
        samples[start * 16 : end * 16] = chance.normal(0, 0.1, (end - start) * 16)
    return samples.astype(np.float32)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "expected"),
    [
        (300, 900, 600.0),  # the word was said to last through the silence after it
        (300, 500, 500.0),  # sound goes on: the next word
        (300, 605, 600.0),
        (700, 900, 900.0),  # nothing sounds: the aligner is believed
        (300, 1500, 600.0),  # beyond the recording
    ],
)
def test_a_word_ends_where_its_sound_ends(start_ms: int, end_ms: int, expected: float) -> None:
    assert sounding_end_ms(sounding((100, 600)), start_ms, end_ms) == expected


def test_audio_of_less_than_a_frame_tells_nothing() -> None:
    assert sounding_end_ms(np.zeros(100, np.float32), 0, 6) == 6


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    path = tmp_path / "a.wav"
    soundfile.write(path, sounding((0, 250), (500, 750)), 16_000)
    ends = (("one", 250.0), ("two", 700.0))
    return Recording("a.wav", path, "en", "one two", ends)


def test_alignment_is_held_against_the_truth(recording: Recording) -> None:
    words = (Word("One", 0, 500, 0.9), Word("two.", 500, 1000, 0.9))
    assert aligned_ends(recording, words) == (("One", 250.0), ("two.", 750.0))
    assert alignment_errors_ms(recording, words) == [0.0, 50.0]


def test_a_recording_is_aligned_in_one_pass(recording: Recording) -> None:
    found = align_offline(ScriptedRecognizer(), recording)
    assert [(w.start_ms, w.end_ms) for w in found] == [(0, 250), (500, 750)]


def test_a_recording_longer_than_the_window_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    soundfile.write(path, np.zeros(31 * 16_000, np.float32), 16_000)
    with pytest.raises(SystemExit, match=r"long\.wav"):
        align_offline(ScriptedRecognizer(), Recording("long.wav", Path(path), "en", "x"))
