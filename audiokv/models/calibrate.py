"""``audiokv calibrate``: measures which heads of a model follow speech."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.head_scores.hit_ratios import HitTally, hit_ratios, rank_correlation
from audiokv.models.head_scores.score_files import Calibration, save_head_scores
from audiokv.models.load import model_type
from audiokv.models.recordings import about, find_recordings, read_samples
from audiokv.models.weights import DEFAULT_MODEL, resolve_model
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from audiokv.models.head_scores.hit_ratios import Floats
    from audiokv.models.recordings import Recording
    from audiokv.models.weights import ModelFiles
    from audiokv.models.whisper.word_alignment import AlignedSpeech, Aligner

GOOD_SCORE = 0.5  # from here on a head is said to follow the audio
_TAKES_HEADS = {"gemma3n"}  # kinds of models whose settings name such heads
# The paper keeps words that a forced aligner is sure of. What our alignment has to say about a word
# is how likely the model finds it: it cannot look at a word that it does not hear.
MIN_PROBABILITY = 0.5
_SAMPLES_PER_MS = 16


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``audiokv calibrate``."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="a Whisper or Gemma-3n, by name or folder (default: %(default)s)",
    )
    parser.add_argument(
        "--audio",
        type=Path,
        required=True,
        metavar="DIR",
        help="recordings, with a .txt beside each where the text is known, or a manifest.jsonl "
        "with the times of the words; speech that the model is not to be tested on",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="JSON file to write"
    )
    parser.add_argument("--language", help="two-letter code (default: as stated or detected)")


def run(args: Namespace) -> int:
    """Measure the heads of a model and write their scores; return the exit code.

    Raises:
        AudioKVError: The model, a recording or the file to write is at fault.
    """
    recordings = find_recordings(args.audio)
    files = resolve_model(args.model)
    aligner = _open_aligner(files)
    scores, calibration = calibrate(aligner, recordings, args.model, args.language)
    save_head_scores(args.out, scores, calibration)
    sys.stdout.write(
        f"{args.out}: {scores.shape[0]} layers of {scores.shape[1]} heads, from "
        f"{calibration.n_words} words in {calibration.n_recordings} recordings; rank correlation "
        f"of two halves {calibration.rank_stability:.3f}\n"
    )
    if model_type(files) in _TAKES_HEADS:
        heads = [[int(i), int(j)] for i, j in np.argwhere(scores >= GOOD_SCORE)]
        sys.stdout.write(f'For audiokv.json beside the model: "alignment_heads": {heads}\n')
    return 0


def _open_aligner(files: ModelFiles) -> Aligner:
    if model_type(files) in _TAKES_HEADS:
        from audiokv.models.gemma3n.head_calibration import (  # noqa: PLC0415  torch takes seconds
            HeadReader,
        )

        return HeadReader(files.folder)
    from audiokv.models.whisper.word_alignment import (  # noqa: PLC0415  likewise
        open_aligner,
    )

    return open_aligner(files)


def calibrate(
    aligner: Aligner, recordings: Sequence[Recording], model: str, language: str | None = None
) -> tuple[Floats, Calibration]:
    """Measure how often each head looks at the word that is being said.

    Args:
        aligner: The model.
        recordings: Every other one counts to the first half, the rest to the second.
        model: Name of the model.
        language: ISO 639-1 code for all recordings; None goes by what they state, or detects it.

    Returns:
        Scores of shape (layers, heads), 0 to 1, and what they come from.

    Raises:
        AudioKVError: A recording cannot be used, or no word in any of them.
    """
    halves = (HitTally(*aligner.shape), HitTally(*aligner.shape))
    n_words = 0
    for number, recording in enumerate(recordings):
        for speech in _speeches(aligner, recording, language):
            n_words += _count(halves[number % 2], speech, aligner)
    if not n_words:
        raise ConfigError(
            "no_words",
            f"The model finds no word in the {len(recordings)} recordings.",
            "Give recordings of speech, in a language the model knows.",
        )
    stability = rank_correlation(halves[0].scores, halves[1].scores)
    halves[0].join(halves[1])
    both = halves[0]
    return both.scores, Calibration(
        model, aligner.top_k, len(recordings), n_words, both.n_steps, stability
    )


def _speeches(
    aligner: Aligner, recording: Recording, language: str | None
) -> Iterator[AlignedSpeech]:
    """Yield what is said in a recording; a long one without labels is taken in parts."""
    samples = read_samples(recording.path)
    code = language or recording.language
    with about(recording):
        if recording.text is not None or recording.words:
            yield aligner.align(samples, code, recording.text, recording.words)
            return
        n_parts = -(-len(samples) // (aligner.max_ms * _SAMPLES_PER_MS))
        for part in np.array_split(samples, n_parts):
            yield aligner.align(part, code)


def _count(tally: HitTally, speech: AlignedSpeech, aligner: Aligner) -> int:
    """Take in the steps of the words that the model is sure of; return how many there are."""
    n_words = 0
    for word in speech.words:
        if word.probability < MIN_PROBABILITY or word.end_ms <= word.start_ms:
            continue
        steps = speech.attention[:, :, word.first_token : word.end_token]
        first, end = word.start_ms // aligner.slot_ms, -(-word.end_ms // aligner.slot_ms)
        tally.add(hit_ratios(steps, first, end, aligner.top_k))
        n_words += 1
    return n_words
