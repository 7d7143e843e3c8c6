from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.recordings import (
    add_recording_arguments,
    chosen_recordings,
    near_silence,
    read_manifest,
    to_pcm,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    at_8_khz = np.repeat(np.sin(np.arange(8_000) / 10)[:, None], 2, axis=1).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", at_8_khz, 8_000)
    entries = [
        {
            "file": "a.wav",
            "language": "en",
            "text": "one two",
            "words": [{"word": "one", "start_s": 0.1, "end_s": 0.5}],
        },
        {"file": "sub/b.wav", "language": "zh", "text": "砸"},
        {"file": "meeting.wav", "language": "en", "text": None},
    ]
    path = tmp_path / "manifest.jsonl"
    path.write_text("".join(json.dumps(e, ensure_ascii=False) + "\n" for e in entries), "utf-8")
    return path


def test_recordings_with_a_text_are_found(manifest: Path) -> None:
    first, second = read_manifest(manifest)
    assert (first.name, first.language, first.text) == ("a.wav", "en", "one two")
    assert first.word_ends == (("one", 500.0),)
    assert second.name == "sub/b.wav"
    assert second.word_ends == ()


def test_a_part_of_the_name_chooses(manifest: Path) -> None:
    parser = ArgumentParser()
    add_recording_arguments(parser)
    args = parser.parse_args(["--manifest", str(manifest), "--files", "sub/"])
    assert [r.name for r in chosen_recordings(args)] == ["sub/b.wav"]


def test_nothing_to_measure_is_said_so(manifest: Path) -> None:
    with pytest.raises(SystemExit, match=r"no\.jsonl"):
        read_manifest(manifest.with_name("no.jsonl"))
    with pytest.raises(SystemExit, match="nowhere"):
        read_manifest(manifest, ["nowhere"])


def test_audio_comes_as_16_khz_mono(manifest: Path) -> None:
    samples = read_manifest(manifest)[0].samples()
    assert samples.dtype == np.float32
    assert abs(samples.size - 16_000) < 50
    assert 0.9 < np.abs(samples).max() < 1.1


def test_near_silence_is_faint_and_repeatable() -> None:
    hiss = near_silence(16_000)
    assert np.array_equal(hiss, near_silence(16_000))
    assert not np.array_equal(hiss, near_silence(16_000, seed=1))
    assert 0 < np.abs(hiss).max() < 0.002


def test_samples_are_clipped_not_wrapped() -> None:
    pcm = np.frombuffer(to_pcm(np.array([0.0, 0.5, 2.0, -2.0], np.float32)), "<i2")
    assert pcm.tolist() == [0, 16_384, 32_767, -32_768]
