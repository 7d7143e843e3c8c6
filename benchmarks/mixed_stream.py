"""Many recordings in one stream with pauses between them, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.captions import join_words
from benchmarks.measures import errors, final_words, scored_units
from benchmarks.recordings import SAMPLES_PER_MS, near_silence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.captions import Word
    from benchmarks.measures import Arrival, Errors
    from benchmarks.recordings import FloatArray, Recording

SHORTEST_PAUSE_S = 0.3
LONGEST_PAUSE_S = 30.0
# A sentence is lost where more of it is missing or misheard, doubled where more stands besides.
_MOST = 0.5
_A_FEW_UNITS = 2  # so that one misheard word of a short sentence is no loss
_A_LOOP = 3  # times a phrase is said in a row


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording at its place in a stream.

    Attributes:
        recording: What is said.
        start_ms: Where its audio begins.
        end_ms: Where its audio ends.
        pause_ms: Near-silence before it.
    """

    recording: Recording
    start_ms: float
    end_ms: float
    pause_ms: float


@dataclass(frozen=True, slots=True)
class MixedStream:
    """Audio and what is said in it.

    Attributes:
        samples: Shape (n,), 16 kHz mono.
        spoken: The recordings in order.
    """

    samples: FloatArray
    spoken: tuple[Spoken, ...]


def mix(recordings: Sequence[Recording], at_least_ms: float, seed: int) -> MixedStream:
    """Put recordings in a random order, again and again, with random pauses before each.

    Pauses are spread evenly over the logarithm from 0.3 to 30 s.

    Args:
        recordings: What is said.
        at_least_ms: Recordings are added until the stream is that long.
        seed: Decides.
    """
    chance = np.random.default_rng(seed)
    pieces: list[FloatArray] = []
    spoken: list[Spoken] = []
    n_samples = 0
    while n_samples < at_least_ms * SAMPLES_PER_MS:
        for i in chance.permutation(len(recordings)):
            span = np.log([SHORTEST_PAUSE_S, LONGEST_PAUSE_S])
            n_pause = int(1e3 * np.exp(chance.uniform(*span))) * SAMPLES_PER_MS
            audio = recordings[i].samples()
            pieces += [near_silence(n_pause, seed + len(spoken)), audio]
            start_ms = (n_samples + n_pause) / SAMPLES_PER_MS
            end_ms = start_ms + audio.size / SAMPLES_PER_MS
            spoken.append(Spoken(recordings[i], start_ms, end_ms, n_pause / SAMPLES_PER_MS))
            n_samples += n_pause + audio.size
            if n_samples >= at_least_ms * SAMPLES_PER_MS:
                break
    pieces.append(near_silence(2000 * SAMPLES_PER_MS, seed))
    return MixedStream(np.concatenate(pieces), tuple(spoken))


def words_of_each(spoken: Sequence[Spoken], arrivals: Sequence[Arrival]) -> list[list[Word]]:
    """Return the final words that fall to each recording, by the middle of each word.

    What falls into a pause goes to the recording whose edge is nearer.
    """
    borders_ms = [(a.end_ms + b.start_ms) / 2 for a, b in pairwise(spoken)]
    found: list[list[Word]] = [[] for _ in spoken]
    for word in final_words(arrivals):
        middle_ms = (word.start_ms + word.end_ms) / 2
        found[int(np.searchsorted(borders_ms, middle_ms))].append(word)
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one recording inside a stream.

    Attributes:
        spoken: The recording at its place.
        text: What the stream made of it.
        alone_text: What a stream of it alone makes of it.
        mixed: Errors inside the stream.
        alone: Errors alone.
        is_lost: Whether most of what is heard alone is missing or misheard.
        is_doubled: Whether half as much again, or more, stands there besides.
        is_looping: Whether a phrase repeats itself, more often than alone.
    """

    spoken: Spoken
    text: str
    alone_text: str
    mixed: Errors
    alone: Errors
    is_lost: bool
    is_doubled: bool
    is_looping: bool

    def as_json(self) -> dict[str, object]:
        """Return it for the results file."""
        return {
            "file": self.spoken.recording.name,
            "start_ms": round(self.spoken.start_ms),
            "pause_before_ms": round(self.spoken.pause_ms),
            "text": self.text,
            "text_alone": self.alone_text,
            "error_percent": round(100 * self.mixed.rate, 1),
            "error_percent_alone": round(100 * self.alone.rate, 1),
            "is_lost": self.is_lost,
            "is_doubled": self.is_doubled,
            "is_looping": self.is_looping,
        }


def outcome(spoken: Spoken, words: Sequence[Word], alone_text: str) -> Outcome:
    """Hold what a stream made of a recording against what a stream of it alone does."""
    recording = spoken.recording
    language = recording.language
    text = join_words(list(words))
    against = errors(alone_text, text, language)
    n_missing = against.deletions + against.substitutions  # misheard is missing too
    most = max(against.n_reference * _MOST, _A_FEW_UNITS)
    n_heard = n_repeats(scored_units(text, language))
    return Outcome(
        spoken=spoken,
        text=text,
        alone_text=alone_text,
        mixed=errors(recording.text, text, language),
        alone=errors(recording.text, alone_text, language),
        is_lost=bool(alone_text) and (n_missing > most or not text),
        is_doubled=against.insertions > most,
        is_looping=n_heard >= _A_LOOP and n_heard > n_repeats(scored_units(alone_text, language)),
    )


def n_repeats(units: Sequence[str]) -> int:
    """Return how many times in a row a phrase is said at the most; 1 where none is repeated."""
    most = min(len(units), 1)
    for period in range(1, len(units) // 2 + 1):
        n_same = 0
        for i in range(period, len(units)):
            n_same = n_same + 1 if units[i] == units[i - period] else 0
            most = max(most, 1 + n_same // period)
    return most
