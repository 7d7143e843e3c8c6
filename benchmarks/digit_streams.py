"""Live streams of spoken digits with the true words and their times, the same for the same seed.

Only test takes are spoken, which the digit models are never trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measures import errors, final_words
from benchmarks.recordings import SAMPLES_PER_MS, near_silence
from benchmarks.results_file import REPOSITORY
from tools.digits_data import (
    WORDS,
    Conditions,
    DigitBank,
    SpokenString,
    load_recordings,
    noise,
    speech_level,
    string_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.captions import Word
    from benchmarks.measures import Arrival, Errors
    from benchmarks.recordings import FloatArray

DEFAULT_DIGITS = REPOSITORY.parent / "shared" / "speech" / "digits"
DIGITS_MODEL = Path("tests") / "models" / "gemma3n-digits"
TAIL_MS = 1000  # near-silence behind a stream, so that its last segment ends by its pause
_STREAM = 7  # keeps a stream's chance apart from that of other strings with the same seed
_ROOM = 8  # likewise for its noise
_SCENE_MS = 30_000  # after so long the noise of a stream becomes another
_FADE_MS = 2000


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """How a stream of many strings is put together.

    Attributes:
        n_digits: Shortest and longest string.
        gaps_ms: Shortest and longest near-silence before a string.
        conditions: Pauses in a string, its level and colour; and the noise of the room, which
            goes on over strings and gaps and fades into another every half minute.
    """

    n_digits: tuple[int, int] = (1, 20)
    gaps_ms: tuple[int, int] = (400, 1600)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class PlacedString:
    """A string of digits at its place in a stream; times in ms from the stream's start.

    Attributes:
        words: The spoken words.
        starts_ms: Where each word's recording begins.
        ends_ms: Where it ends.
        start_ms: Where the string's audio begins, with the room before its first word.
        end_ms: Where the string's audio ends.
    """

    words: tuple[str, ...]
    starts_ms: tuple[float, ...]
    ends_ms: tuple[float, ...]
    start_ms: float
    end_ms: float

    @property
    def text(self) -> str:
        """The words in one line."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class DigitStream:
    """Audio and what is said in it.

    Attributes:
        samples: Shape (n,), 16 kHz mono.
        strings: The strings in order, at least one.
    """

    samples: FloatArray
    strings: tuple[PlacedString, ...]

    @property
    def duration_ms(self) -> float:
        """Length of the audio."""
        return self.samples.size / SAMPLES_PER_MS

    @property
    def n_digits(self) -> int:
        """Spoken digits."""
        return sum(len(one.words) for one in self.strings)


def bank_of_test_takes(folder: Path = DEFAULT_DIGITS) -> DigitBank:
    """Return the recordings that no digit model was trained on.

    Args:
        folder: Holds ``{digit}_{speaker}_{take}.wav``.

    Raises:
        SystemExit: It holds none.
    """
    try:
        return DigitBank(load_recordings(folder, is_test=True))
    except FileNotFoundError as error:
        raise SystemExit(f"{error} Name another folder with --digits DIR.") from error


def join_strings(strings: Sequence[SpokenString], gaps_ms: Sequence[int]) -> DigitStream:
    """Put strings behind each other.

    Args:
        strings: In this order, at least one.
        gaps_ms: Near-silence before each.

    Raises:
        ValueError: There are more gaps than strings, or fewer.
    """
    pieces: list[FloatArray] = []
    placed: list[PlacedString] = []
    n_samples = 0
    for at, (string, gap_ms) in enumerate(zip(strings, gaps_ms, strict=True)):
        pieces += [near_silence(gap_ms * SAMPLES_PER_MS, at), string.samples]
        n_samples += gap_ms * SAMPLES_PER_MS
        start_ms = n_samples / SAMPLES_PER_MS
        n_samples += string.samples.size
        placed.append(_placed(string, start_ms, n_samples / SAMPLES_PER_MS))
    pieces.append(near_silence(TAIL_MS * SAMPLES_PER_MS, len(strings)))
    return DigitStream(np.concatenate(pieces), tuple(placed))


def alone(string: SpokenString) -> DigitStream:
    """Return a stream of one string, which begins at once."""
    return join_strings([string], [0])


def digit_stream(
    bank: DigitBank, at_least_ms: float, seed: int, plan: StreamPlan | None = None
) -> DigitStream:
    """Return a stream of strings of drawn lengths.

    A stream begins as a longer one with the same seed does.

    Args:
        bank: Recordings of digits.
        at_least_ms: Strings are added until the stream is that long.
        seed: Decides.
        plan: How it is put together; by default as ``StreamPlan()``.
    """
    plan = plan or StreamPlan()
    without_noise = replace(plan.conditions, quiet_share=1.0)
    strings: list[SpokenString] = []
    gaps_ms: list[int] = []
    n_samples = TAIL_MS * SAMPLES_PER_MS
    while n_samples < at_least_ms * SAMPLES_PER_MS or not strings:
        rng = np.random.default_rng([seed, _STREAM, len(strings)])
        n_digits = int(rng.integers(plan.n_digits[0], plan.n_digits[1] + 1))
        gaps_ms.append(int(rng.integers(plan.gaps_ms[0], plan.gaps_ms[1] + 1)))
        strings.append(string_of(rng, bank, n_digits, without_noise))
        n_samples += gaps_ms[-1] * SAMPLES_PER_MS + strings[-1].samples.size
    quiet = join_strings(strings, gaps_ms)
    return replace(quiet, samples=_in_rooms(quiet, seed, plan.conditions))


def _in_rooms(stream: DigitStream, seed: int, conditions: Conditions) -> FloatArray:
    """Return a stream's audio with the noise of one room after the other, or of none."""
    samples = stream.samples
    n_scene, n_fade = _SCENE_MS * SAMPLES_PER_MS, _FADE_MS * SAMPLES_PER_MS
    rising = np.linspace(0.0, 1.0, n_fade, dtype=np.float32)
    heard = samples.copy()
    for scene, start in enumerate(range(0, samples.size, n_scene)):
        rng = np.random.default_rng([seed, _ROOM, scene])
        if rng.random() < conditions.quiet_share:
            continue
        distance_db = rng.uniform(*conditions.snr_db)
        softest = _softest(stream, start, start + n_scene + n_fade)
        level = softest * 10.0 ** (-distance_db / 20.0)
        room = noise(rng, n_scene + n_fade) * level
        room[:n_fade] *= rising
        room[-n_fade:] *= rising[::-1]
        part = heard[start : start + n_scene + n_fade]
        part += room[: part.size].astype(np.float32)
    clipped: FloatArray = heard.clip(-1.0, 1.0)
    return clipped


def _softest(stream: DigitStream, start: int, end: int) -> float:
    """Return the speech level of the softest string between two samples of the stream."""
    places = [
        (round(one.start_ms * SAMPLES_PER_MS), round(one.end_ms * SAMPLES_PER_MS))
        for one in stream.strings
    ]
    levels = [speech_level(stream.samples[a:b]) for a, b in places if a < end and b > start]
    return min(levels, default=0.0)


def words_of_strings(stream: DigitStream, arrivals: Sequence[Arrival]) -> list[list[Word]]:
    """Return the final words that fall to each string, by the middle of each word.

    What falls between two strings goes to the one whose edge is nearer.
    """
    borders_ms = [(a.ends_ms[-1] + b.starts_ms[0]) / 2 for a, b in pairwise(stream.strings)]
    found: list[list[Word]] = [[] for _ in stream.strings]
    for word in final_words(arrivals):
        middle_ms = (word.start_ms + word.end_ms) / 2
        found[int(np.searchsorted(borders_ms, middle_ms))].append(word)
    return found


def errors_of_strings(stream: DigitStream, arrivals: Sequence[Arrival]) -> list[Errors]:
    """Return the errors of the final captions in each string."""
    return [
        errors(string.text, " ".join(word.text for word in words), "en")
        for string, words in zip(stream.strings, words_of_strings(stream, arrivals), strict=True)
    ]


def _placed(string: SpokenString, start_ms: float, end_ms: float) -> PlacedString:
    return PlacedString(
        words=tuple(WORDS[digit] for digit in string.digits),
        starts_ms=tuple(start_ms + one for one in string.start_ms),
        ends_ms=tuple(start_ms + one for one in string.end_ms),
        start_ms=start_ms,
        end_ms=end_ms,
    )
