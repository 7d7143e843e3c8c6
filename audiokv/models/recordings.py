"""Recordings with labels, from a folder: what calibration and dialect priors are made from."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile

from audiokv.streaming.errors import AudioFormatError, ConfigError
from audiokv.streaming.resampler import StreamResampler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from audiokv.models.base import FloatArray

AUDIO_SUFFIXES = frozenset({".aif", ".aiff", ".flac", ".mp3", ".oga", ".ogg", ".opus", ".wav"})
MANIFEST = "manifest.jsonl"


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word whose time is known.

    Attributes:
        text: The word.
        start_ms: Where it begins in the recording.
        end_ms: Where it ends.
    """

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording of a folder.

    Attributes:
        path: The audio file.
        text: What is said in it, or None where that is not known.
        words: The same word by word, where the times are known; else empty.
        language: ISO 639-1 code, or None where it is not stated.
    """

    path: Path
    text: str | None = None
    words: tuple[TimedWord, ...] = ()
    language: str | None = None


def find_recordings(folder: Path) -> list[Recording]:
    """Return the recordings of a folder in the order of their names.

    Where the folder has a ``manifest.jsonl``, that lists them, one JSON object a line: ``file``,
    and where known ``text``, ``language`` and ``words`` (``word``, ``start_s``, ``end_s``).
    Without one every audio file in it and below counts, with the text of the ``.txt`` beside it.

    Raises:
        ConfigError: There is no such folder, nothing in it, or a label that cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(
            "no_folder", f"There is no folder {str(folder)!r}.", "Name a folder of recordings."
        )
    manifest = folder / MANIFEST
    found = _listed(manifest) if manifest.is_file() else _beside_each_other(folder)
    if not found:
        raise ConfigError(
            "no_recordings",
            f"There is no recording in {str(folder)!r}.",
            f"Put files of these kinds there: {', '.join(sorted(AUDIO_SUFFIXES))}.",
        )
    return sorted(found, key=lambda recording: str(recording.path))


def read_samples(path: Path) -> FloatArray:
    """Return a recording as 16 kHz mono, shape (n,).

    Raises:
        AudioFormatError: The file is missing or cannot be read as audio, or holds none.
    """
    try:
        samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError, TypeError) as error:
        raise AudioFormatError(
            "not_audio",
            f"The file {str(path)!r} cannot be read as audio.",
            "Give a file like WAV, FLAC, MP3, Ogg or AIFF.",
        ) from error
    if not len(samples):
        raise AudioFormatError(
            "empty_audio", f"The file {str(path)!r} holds no audio.", "Leave it out."
        )
    mono = samples.mean(axis=1, dtype=np.float32)
    resampler = StreamResampler(rate_hz)
    whole: FloatArray = np.concatenate((resampler.push(mono), resampler.flush()))
    return whole


@contextmanager
def about(recording: Recording) -> Iterator[None]:
    """Let what is wrong with a recording name its file.

    Raises:
        ConfigError: The block raised it.
    """
    try:
        yield
    except ConfigError as error:
        message = f"{str(recording.path)!r}: {error.message}"
        raise ConfigError(error.code, message, error.remedy) from error


def _beside_each_other(folder: Path) -> list[Recording]:
    paths = [path for path in folder.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES]
    return [Recording(path, _read_label(path.with_suffix(".txt"))) for path in paths]


def _read_label(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        text = " ".join(path.read_text("utf-8").split())
    except UnicodeDecodeError as error:
        raise _bad_label(path, "it is not UTF-8") from error
    if not text:
        raise _bad_label(path, "it is empty")
    return text


def _listed(manifest: Path) -> list[Recording]:
    found = []
    for number, line in enumerate(manifest.read_text("utf-8").splitlines(), 1):
        try:
            if line.strip():
                found.append(_from_entry(manifest.parent, json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise _bad_label(manifest, f"line {number} is wrong ({error!r})") from error
    return found


def _from_entry(folder: Path, entry: Mapping[str, Any]) -> Recording:
    words = tuple(
        TimedWord(str(word["word"]), round(1000 * word["start_s"]), round(1000 * word["end_s"]))
        for word in entry.get("words") or ()
    )
    return Recording(folder / entry["file"], entry.get("text"), words, entry.get("language"))


def _bad_label(path: Path, what: str) -> ConfigError:
    return ConfigError(
        "bad_label", f"The label {str(path)!r} cannot be used: {what}.", "Correct it or remove it."
    )
