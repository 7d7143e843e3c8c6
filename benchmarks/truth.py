"""What the captions of each recording are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.models.load import load_recognizer
from audiokv.models.weights import resolve_model
from benchmarks.offline import OfflineDecoder
from benchmarks.speech_ends import align_offline, aligned_ends, alignment_errors_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.recordings import Recording


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of one recording.

    Attributes:
        offline_text: What offline decoding of the same weights makes of it.
        word_ends: True words with their ends in ms: the manifest's, else aligned.
        alignment_errors_ms: Aligned less true ends, where the manifest has true ones.
    """

    offline_text: str
    word_ends: tuple[tuple[str, float], ...]
    alignment_errors_ms: tuple[float, ...] = ()


def find_truth(model: str, recordings: Sequence[Recording]) -> dict[str, Truth]:
    """Decode and align every recording offline; returns what is known by its name.

    Args:
        model: Name or folder of the model.
        recordings: None longer than the model's window.
    """
    decoder = OfflineDecoder(resolve_model(model).folder)
    recognizer = load_recognizer(model)
    found: dict[str, Truth] = {}
    for recording in recordings:
        aligned = align_offline(recognizer, recording)
        text = decoder.text(recording)
        if recording.word_ends:
            misses = alignment_errors_ms(recording, aligned)
            found[recording.name] = Truth(text, recording.word_ends, tuple(misses))
        else:
            found[recording.name] = Truth(text, aligned_ends(recording, aligned))
    return found
