from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.retention_speech import (
    DIGIT_WORDS,
    MAX_CLIP_MS,
    SPEECH_NAMES,
    noisy,
    read_speech,
    spelled,
)

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = {"a.wav": 9.0, "b.wav": 8.0, "c.wav": 7.0, "d.wav": 6.0}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    for name, seconds in {**SECONDS, "de.wav": 4.0}.items():
        soundfile.write(tmp_path / name, 0.1 * chance.standard_normal(int(16e3 * seconds)), 16_000)
    entries = [{"file": name, "language": "en", "text": f"text {name[0]}"} for name in SECONDS]
    entries.append({"file": "de.wav", "language": "de", "text": "ein Satz"})
    path = tmp_path / "manifest.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in entries), "utf-8")
    (tmp_path / "digits").mkdir()
    for digit in range(10):
        for take in (0, 1, 2, 3, 4, 5, 17):
            sound = np.full(4_000, 0.01 * (digit + 1))
            soundfile.write(tmp_path / "digits" / f"{digit}_ann_{take}.wav", sound, 8_000)
    return path


def test_numerals_count_as_the_words_of_their_digits() -> None:
    assert spelled("3791").split() == ["three", "seven", "nine", "one"]
    assert spelled("room 40, ²").split() == ["room", "four", "zero", ",", "²"]


def test_every_set_is_the_same_at_every_reading(manifest: Path) -> None:
    for name in SPEECH_NAMES:
        first, second = read_speech(name, manifest), read_speech(name, manifest)
        assert [c.name for c in first] == [c.name for c in second]
        assert len({c.name for c in first}) == len(first)
        for a, b in zip(first, second, strict=True):
            assert np.array_equal(a.samples, b.samples)
            assert a.duration_ms <= MAX_CLIP_MS or name == "digit-streams"  # Whisper's limit


def test_only_test_takes_of_the_digits_are_used_each_once(manifest: Path) -> None:
    clips = read_speech("digits", manifest)
    assert len(clips) == 5  # takes 5 and 17 are for training
    for clip in clips:
        assert sorted(clip.text.split()) == sorted(DIGIT_WORDS)
    assert len({clip.text for clip in clips}) > 1
    assert clips[0].errors(clips[0].text).total == 0
    numerals = "".join(str(DIGIT_WORDS.index(word)) for word in clips[0].text.split())
    assert clips[0].errors(numerals).total == 0


def test_strings_are_long_and_without_pauses_and_streams_are_of_several_strings(
    manifest: Path,
) -> None:
    strings, streams = (read_speech(f"digit-{kind}", manifest) for kind in ("strings", "streams"))
    spoken_ms = 500  # of one digit here
    for clip in strings:
        words = clip.text.split()
        assert len(words) == 20
        assert set(words) <= set(DIGIT_WORDS)
        pauses_ms = clip.duration_ms - 20 * spoken_ms - 2 * 300  # there is room around a string
        assert 19 * 60 <= pauses_ms + 1 <= 19 * 200 + 1
    for clip in streams:
        assert clip.duration_ms >= 25_000
        assert len(clip.text.split()) * spoken_ms < clip.duration_ms - 5_000
    assert sum(len(clip.text.split()) for clip in [*strings, *streams]) > 800
    assert len({clip.cluster for clip in [*strings, *streams]}) == len(strings) + len(streams)


def test_noise_has_the_level_asked_for(manifest: Path) -> None:
    (clean, *_) = read_speech("english", manifest)
    for snr_db in (20, 10, 5):
        noise = noisy(clean, snr_db).samples - clean.samples
        ratio = np.mean(clean.samples**2) / np.mean(noise**2)
        assert 10 * np.log10(ratio) == pytest.approx(snr_db, abs=0.2)
    loud, soft = (read_speech(f"noise{snr_db}", manifest)[0] for snr_db in (5, 20))
    assert (
        np.abs(loud.samples - clean.samples).mean()
        > 4 * np.abs(soft.samples - clean.samples).mean()
    )
    assert loud.cluster == clean.cluster  # they are not independent
    assert loud.name != clean.name


def test_recordings_are_joined_with_pauses(manifest: Path) -> None:
    clips = read_speech("pauses", manifest)
    assert {clip.told_language for clip in clips} == {"en"}
    for clip in clips:
        n_parts = clip.text.split().count("text")
        assert n_parts >= 2
        spoken_ms = 1000 * sum(SECONDS[f"{w}.wav"] for w in clip.text.split() if w != "text")
        pauses_ms = clip.duration_ms - spoken_ms
        assert 300 + 300 * (n_parts - 1) <= pauses_ms <= 300 + 1500 * (n_parts - 1)


def test_languages_are_apart_and_a_mix_has_to_be_followed(manifest: Path) -> None:
    (german,) = read_speech("languages", manifest)
    assert (german.language, german.told_language) == ("de", "de")
    assert all(clip.language == "en" for clip in read_speech("english", manifest))
    mixed = read_speech("mixed", manifest)
    assert any("ein Satz" in clip.text for clip in mixed)
    assert {clip.told_language for clip in mixed} == {None}


def test_what_is_not_there_is_said_so(manifest: Path) -> None:
    with pytest.raises(SystemExit, match="no speech 'songs'"):
        read_speech("songs", manifest)
    for path in (manifest.parent / "digits").iterdir():
        path.unlink()
    with pytest.raises(SystemExit, match="no digits"):
        read_speech("digits", manifest)
