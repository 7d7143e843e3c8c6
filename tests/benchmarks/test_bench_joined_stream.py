from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.joined_stream import arrivals_of_each, join, original_name
from benchmarks.measures import Arrival
from benchmarks.mixed_stream import Spoken
from benchmarks.recordings import Recording
from tests.benchmarks.making import arrival, words

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    found = []
    for i in range(2):
        path = tmp_path / f"{i}.wav"
        soundfile.write(path, np.full(16_000 * (i + 1), 0.5, np.float32), 16_000)
        found.append(Recording(path.name, path, "en", "text"))
    return found


def test_whole_rounds_fill_the_stream_and_say_where_each_recording_is(
    recordings: list[Recording],
) -> None:
    stream = join(recordings, 9_000)
    samples = np.frombuffer(b"".join(stream.speech.blocks), "<i2") / 32768
    names = [one.recording.name for one in stream.spoken]
    assert names == ["0.wav#1", "1.wav#1", "0.wav#2", "1.wav#2"]
    assert [original_name(name) for name in names] == ["0.wav", "1.wav"] * 2
    for one in stream.spoken:
        said = samples[int(one.start_ms * 16) : int(one.end_ms * 16)]
        assert np.allclose(said, 0.5, atol=1e-3)
        pause = samples[int((one.start_ms - one.pause_ms) * 16) : int(one.start_ms * 16)]
        assert 700 <= one.pause_ms < 3000
        assert np.abs(pause).max() < 0.01
    assert stream.speech.duration_ms >= 9_000


def test_the_seed_decides_the_pauses(recordings: list[Recording]) -> None:
    first, same, other = (join(recordings, 1, seed).spoken for seed in (1, 1, 2))
    assert first == same
    assert first != other


def from_ms(start_ms: int, one: Arrival) -> Arrival:
    """The same caption said later in the stream."""
    text = one.caption.text
    caption = replace(
        one.caption,
        start_ms=start_ms,
        end_ms=start_ms + one.caption.end_ms,
        words=words(text, len(text.split()), start_ms),
    )
    return Arrival(one.at_ms, caption)


def test_captions_go_to_their_recording_and_count_from_its_start(tmp_path: Path) -> None:
    def spoken(name: str, start_ms: float, end_ms: float) -> Spoken:
        return Spoken(Recording(name, tmp_path, "en", "x"), start_ms, end_ms, 0.0)

    said = [spoken("a#1", 1000.0, 2000.0), spoken("b#1", 5000.0, 5400.0)]
    first = from_ms(1100, arrival(1900, "one two", is_final=True, segment=0))
    early = from_ms(4950, arrival(5300, "three", segment=1))
    final = from_ms(4950, arrival(5900, "three four", is_final=True, segment=1))
    found = arrivals_of_each(said, [first, early, final])
    assert [[one.at_ms for one in arrivals] for arrivals in found.values()] == [
        [900],
        [300, 900],
    ]
    assert [word.start_ms for word in found["b#1"][1].caption.words] == [-50, 50]
    assert found["a#1"][0].caption.start_ms == 100
