"""The seam between recognisers and everything else; imports no model library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.captions import Word

    FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RecognizerInfo:
    """What a recogniser states about itself.

    Attributes:
        name: Name of the model, shown to clients.
        slot_ms: Length of one key/value slot of its audio cache in ms.
        languages: ISO 639-1 codes it recognises.
        aligns: Whether its word times come from alignment; else words are committed by agreement.
        max_window_ms: Longest audio one decode may cover.
        context_gap_ms: How much silence before a segment should be recognised too, in a window that
            goes on where the silence is no longer; 0 where a segment is best recognised by itself.
        batch_streams: Streams it is best given at once where so many are due; 1 where it gains
            nothing from several.
    """

    name: str
    slot_ms: int
    languages: frozenset[str]
    aligns: bool
    max_window_ms: int
    context_gap_ms: int = 0
    batch_streams: int = 1


@dataclass(frozen=True, slots=True)
class WeightOptions:
    """How a model's weights are to be loaded, where it has a choice.

    Attributes:
        adapter: Folder or hub name of a LoRA adapter, or None.
        weights: How they are held: ``full``, ``int8`` or ``int4``.
        dtype: ``float32``, ``bfloat16``, ``float16``, or None for what suits model and device.
    """

    adapter: str | None = None
    weights: str = "full"
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the source asked for.

    Attributes:
        language: ISO 639-1 code, or None to detect it.
        prompt: Names and jargon to expect, or the empty string.
        profile: Name of the acoustic profile.
    """

    language: str | None = None
    prompt: str = ""
    profile: str = "default"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a recogniser makes of its window, after the words already committed.

    Attributes:
        words: Revisable words in order, times on the stream's sample clock.
        language: Language of the words, or None while unknown.
        language_confidence: Probability of the language, 1 once it is settled.
        is_settled: Whether words may be committed; not while the language is still a guess.
        is_decoded_again: Whether the first text was doubted and the window decoded a second time.
        is_dropped: Whether neither text could be believed, so that there are no words.
    """

    words: tuple[Word, ...]
    language: str | None = None
    language_confidence: float = 1.0
    is_settled: bool = True
    is_decoded_again: bool = False
    is_dropped: bool = False


class RecognizerStream(Protocol):
    """One stream's recognition state. Called by one thread at a time."""

    def open(self, at_ms: int) -> None:
        """Start a fresh window at a position of the stream; drops the audio held so far."""

    def begin_segment(self, at_ms: int) -> None:
        """Note that a segment of speech begins, in a fresh window or in one that goes on."""

    def append(self, samples: FloatArray, speaker: str | None = None) -> None:
        """Add audio that directly follows what the window holds.

        Args:
            samples: Shape (n,), 16 kHz mono float32.
            speaker: Label of who speaks in it, or None; the policy keeps a baseline for each.
        """

    def commit(self, n_words: int) -> None:
        """Make the first words of the latest hypothesis immutable; the next one follows them."""

    def update(self, options: StreamOptions) -> None:
        """Take new wishes of the source from the next decode on."""

    def rest(self) -> None:
        """Do what can wait until a step's captions are out; may be left out at no loss of text."""

    def cache_counters(self) -> CacheCounters | None:
        """Return what the audio cache holds; None where it is not bounded."""


class Recognizer(Protocol):
    """A loaded model, shared by all streams."""

    @property
    def info(self) -> RecognizerInfo:
        """What the model is and can do."""

    def open_stream(self, options: StreamOptions) -> RecognizerStream:
        """Return fresh state for one stream."""

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows of several streams in one go; results in the same order."""
