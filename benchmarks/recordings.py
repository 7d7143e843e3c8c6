"""The recordings of a manifest: audio, true text and, where known, the true times of words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import samplerate
import soundfile

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ
from benchmarks.results_file import REPOSITORY

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

DEFAULT_MANIFEST = REPOSITORY.parent / "shared" / "speech" / "manifest.jsonl"
HISS_AMPLITUDE = 3e-4  # -70 dBFS, as a quiet room has through a microphone
SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording of real speech.

    Attributes:
        name: Its path within the manifest's folder.
        path: The file.
        language: ISO 639-1 code.
        text: What is said.
        word_ends: True words with their ends in ms; empty where not known.
    """

    name: str
    path: Path
    language: str
    text: str
    word_ends: tuple[tuple[str, float], ...] = ()

    def samples(self) -> FloatArray:
        """Return the audio as 16 kHz mono float32, resampled as well as can be."""
        audio, rate_hz = soundfile.read(self.path, dtype="float32", always_2d=True)
        mono: FloatArray = audio.mean(axis=1, dtype=np.float32)
        if rate_hz == SAMPLE_RATE_HZ:
            return mono
        ratio = SAMPLE_RATE_HZ / rate_hz
        return np.asarray(samplerate.resample(mono, ratio, "sinc_best"), dtype=np.float32)


def read_manifest(path: Path, wanted: Sequence[str] = ()) -> list[Recording]:
    """Return the recordings that have a text.

    Args:
        path: The manifest, a JSON object a line.
        wanted: Parts of names; where given, only recordings with one of them in their name.

    Raises:
        SystemExit: The manifest does not exist, or nothing in it fits.
    """
    if not path.is_file():
        raise SystemExit(f"There is no manifest at {path}. Name one with --manifest FILE.")
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    found = [
        Recording(
            name=entry["file"],
            path=path.parent / entry["file"],
            language=entry["language"],
            text=entry["text"],
            word_ends=tuple((w["word"], w["end_s"] * 1e3) for w in entry.get("words", ())),
        )
        for entry in entries
        if entry["text"] and (not wanted or any(part in entry["file"] for part in wanted))
    ]
    if not found:
        raise SystemExit(f"No recording with a text in {path} fits {' '.join(wanted)!r}.")
    return found


def add_recording_arguments(parser: ArgumentParser) -> None:
    """Add ``--manifest`` and ``--files``."""
    parser.add_argument(
        "--manifest", type=Path, default=DEFAULT_MANIFEST, help="JSON Lines (default: %(default)s)"
    )
    parser.add_argument(
        "--files", nargs="+", default=(), metavar="PART", help="only names with one of these parts"
    )


def chosen_recordings(args: Namespace) -> list[Recording]:
    """Return the recordings the command line asks for."""
    return read_manifest(args.manifest, args.files)


def near_silence(n_samples: int, seed: int = 0) -> FloatArray:
    """Return faint noise of shape (n_samples,)."""
    chance = np.random.default_rng(seed)
    return chance.normal(0.0, HISS_AMPLITUDE, n_samples).astype(np.float32)


def to_pcm(samples: FloatArray) -> bytes:
    """Return samples of any shape as little-endian 16-bit integers, clipped."""
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes()
