from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import soundfile

from audiokv.models.recordings import find_recordings
from benchmarks.calibration_speech import (
    FIRST_TRAINING_TAKE,
    N_MEETING_PARTS,
    SPEAKERS,
    write_calibration_speech,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_strings_of_training_takes_with_exact_times(
    tmp_path: Path, speech_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = soundfile.read

    def noted(path: Path) -> Any:
        read.append(path.stem)
        return real(path)

    monkeypatch.setattr(soundfile, "read", noted)
    write_calibration_speech(speech_folder, tmp_path / "new", len(SPEAKERS))
    digits = [name.split("_") for name in read if "_" in name]
    assert {speaker for _, speaker, _ in digits} == set(SPEAKERS)
    assert min(int(take) for _, _, take in digits) >= FIRST_TRAINING_TAKE
    found = find_recordings(tmp_path / "new")
    assert len(found) == len(SPEAKERS) + N_MEETING_PARTS
    for recording in found[: len(SPEAKERS)]:
        samples, rate_hz = real(recording.path)
        assert recording.text == " ".join(word.text for word in recording.words)
        for word in recording.words:
            voice = samples[word.start_ms * rate_hz // 1000 : word.end_ms * rate_hz // 1000]
            assert voice.std() > 0.002  # the softest take; pauses are 0
        assert not samples[: recording.words[0].start_ms * rate_hz // 1000].any()
    assert [r.words for r in found[len(SPEAKERS) :]] == [()] * N_MEETING_PARTS


def test_the_same_seed_gives_the_same_speech(tmp_path: Path, speech_folder: Path) -> None:
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        write_calibration_speech(speech_folder, tmp_path / name, 1, seed)
    texts = [
        json.loads((tmp_path / name / "manifest.jsonl").read_text().splitlines()[0])["words"]
        for name in "abc"
    ]
    assert texts[0] == texts[1] != texts[2]
