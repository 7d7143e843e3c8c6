from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.models.recordings import (
    MANIFEST,
    Recording,
    TimedWord,
    about,
    find_recordings,
    read_samples,
)
from audiokv.streaming.errors import AudioFormatError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def tone(path: Path, rate_hz: int = 16_000, n_channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate_hz) / rate_hz)
    soundfile.write(path, np.repeat(wave[:, None], n_channels, axis=1), rate_hz)
    return path


def test_audio_with_the_text_beside_it(tmp_path: Path) -> None:
    for name in ("b.wav", "a.flac", "inner/c.wav"):
        tone(tmp_path / name)
    (tmp_path / "b.txt").write_text(" He  hoped\nthere \n")
    (tmp_path / "notes.md").write_text("not audio")
    found = find_recordings(tmp_path)
    assert [(str(r.path.relative_to(tmp_path)), r.text) for r in found] == [
        ("a.flac", None),
        ("b.wav", "He hoped there"),
        ("inner/c.wav", None),
    ]


def test_a_manifest_says_what_there_is(tmp_path: Path) -> None:
    tone(tmp_path / "a.wav")
    tone(tmp_path / "unlisted.wav")
    entries = [
        {
            "file": "a.wav",
            "text": "las arenas",
            "language": "es",
            "words": [
                {"word": "las", "start_s": 0.1, "end_s": 0.25},
                {"word": "arenas", "start_s": 0.3, "end_s": 0.7},
            ],
        },
        {"file": "b.wav", "seconds": 3},
    ]
    lines = [json.dumps(entry) for entry in entries]
    (tmp_path / MANIFEST).write_text("\n\n".join(lines))
    first, second = find_recordings(tmp_path)
    assert (first.text, first.language) == ("las arenas", "es")
    assert first.words == (TimedWord("las", 100, 250), TimedWord("arenas", 300, 700))
    assert (second.path, second.text, second.words) == (tmp_path / "b.wav", None, ())


@pytest.mark.parametrize(
    ("files", "code", "named"),
    [
        (None, "no_folder", "nothing"),
        ({}, "no_recordings", "nothing"),
        ({"a.wav": b"", "a.txt": b"  "}, "bad_label", "a.txt"),
        ({"a.wav": b"", "a.txt": b"\xff"}, "bad_label", "a.txt"),
        ({MANIFEST: b"{}"}, "bad_label", "line 1"),
        ({MANIFEST: b'{"file": "a"}\n{'}, "bad_label", "line 2"),
        ({MANIFEST: b'{"file": "a", "words": [{"word": "x"}]}'}, "bad_label", "line 1"),
        ({MANIFEST: b"\n"}, "no_recordings", "nothing"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, files: dict[str, bytes] | None, code: str, named: str
) -> None:
    folder = tmp_path / "nothing"
    if files is not None:
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
    with pytest.raises(ConfigError, match=named) as caught:
        find_recordings(folder)
    assert caught.value.code == code


@pytest.mark.parametrize(("rate_hz", "n_channels"), [(16_000, 1), (8_000, 2), (44_100, 1)])
def test_samples_are_16_khz_mono(tmp_path: Path, rate_hz: int, n_channels: int) -> None:
    samples = read_samples(tone(tmp_path / "a.wav", rate_hz, n_channels))
    assert samples.dtype == np.float32
    assert len(samples) == 16_000
    spectrum = np.abs(np.fft.rfft(samples))
    assert spectrum.argmax() == 440
    assert np.abs(samples[4_000:12_000]).max() == pytest.approx(0.5, abs=0.02)


def test_what_is_not_audio_is_named(tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.wav", tmp_path / "empty.wav"
    broken.write_bytes(b"no audio")
    soundfile.write(empty, np.zeros(0), 16_000)
    for path, code in [
        (broken, "not_audio"),
        (tmp_path / "gone.wav", "not_audio"),
        (empty, "empty_audio"),
    ]:
        with pytest.raises(AudioFormatError, match=path.name) as caught:
            read_samples(path)
        assert caught.value.code == code


def test_what_is_wrong_with_a_recording_names_it(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"a\.wav.*too long.*Cut it") as caught,
        about(Recording(tmp_path / "a.wav")),
    ):
        raise ConfigError("recording_too_long", "It is too long.", "Cut it.")
    assert caught.value.code == "recording_too_long"
