"""``audiokv dialect build``: makes a dialect prior from labelled recordings."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.models.recordings import about, find_recordings, read_samples
from audiokv.models.weights import DEFAULT_MODEL, resolve_model
from audiokv.streaming.audio_format import FRAME_SAMPLES
from audiokv.streaming.captions import Word
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.dialect import LabelledFrames, build_prior, word_importance
from audiokv.streaming.policy.dialect_files import dialect_folder, dialect_path
from audiokv.streaming.policy.spectrum import BandSpectrum

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from audiokv.models.recordings import Recording, TimedWord
    from audiokv.models.whisper.word_alignment import AlignedWord, Aligner


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``audiokv dialect``."""
    parser.add_argument("action", choices=["build"], help="make a prior")
    parser.add_argument(
        "--audio",
        type=Path,
        required=True,
        metavar="DIR",
        help="recordings, each with its text in a .txt beside it, or a manifest.jsonl with the "
        "times of the words",
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="NAME|FILE",
        help="what audiokv serve --dialect loads: a name, or a .json file to write",
    )
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="name or folder of a Whisper that finds where words lie (default: %(default)s)",
    )
    parser.add_argument("--language", help="two-letter code (default: as stated or detected)")
    parser.add_argument(
        "--templates",
        type=int,
        default=16,
        metavar="N",
        help="most spectral shapes to tell apart (default: %(default)s)",
    )


def run(args: Namespace) -> int:
    """Make a prior and write it; return the exit code.

    Raises:
        AudioKVError: A recording, its label, the model or the file to write is at fault.
    """

    @cache
    def aligner() -> Aligner:
        from audiokv.models.whisper.word_alignment import (  # noqa: PLC0415  torch takes seconds
            open_aligner,
        )

        return open_aligner(resolve_model(args.model))

    if args.templates < 1:
        raise ConfigError(
            "bad_value", f"{args.templates} templates tell nothing apart.", "Give 1 or more."
        )
    path = dialect_path(args.out, dialect_folder(os.environ))
    recordings = find_recordings(args.audio)
    frames = [labelled_frames(recording, aligner, args.language) for recording in recordings]
    prior = build_prior(path.stem, frames, args.templates)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        prior.save(path)
    except OSError as error:
        raise ConfigError(
            "cannot_write",
            f"The file {str(path)!r} cannot be written ({error.strerror}).",
            "Name another file.",
        ) from error
    n_s = sum(len(one.importance) for one in frames) / 100
    sys.stdout.write(
        f"{path}: {len(prior.factors)} templates from {len(frames)} recordings of {n_s:.0f} s, "
        f"factors {prior.factors.min():.2f} to {prior.factors.max():.2f}\n"
    )
    return 0


def labelled_frames(
    recording: Recording, aligner: Callable[[], Aligner], language: str | None = None
) -> LabelledFrames:
    """Return the frames of a recording, and which of them lie in words.

    Args:
        recording: With a text, or words and their times.
        aligner: Opens what finds the words of a text; called only where times are not known.
        language: ISO 639-1 code; None goes by what the recording states, or detects it.

    Raises:
        ConfigError: The recording has no label, or does not fit into the model.
    """
    if recording.text is None and not recording.words:
        raise ConfigError(
            "no_label",
            f"Nothing says what is spoken in {str(recording.path)!r}.",
            f"Put its text beside it, as {recording.path.with_suffix('.txt').name}.",
        )
    samples = read_samples(recording.path)
    words: Sequence[TimedWord | AlignedWord] = recording.words
    if not words:
        with about(recording):
            code = language or recording.language
            words = aligner().align(samples, code, recording.text).words
    whole = samples[: len(samples) - len(samples) % FRAME_SAMPLES]
    spans = [Word(word.text, word.start_ms, word.end_ms, 1.0) for word in words]
    return LabelledFrames(
        BandSpectrum().push(whole), word_importance(spans, len(whole) // FRAME_SAMPLES)
    )
