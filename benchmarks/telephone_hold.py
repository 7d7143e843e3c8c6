"""A long call made of recordings, pauses, and parts in which the line only hums, rings or plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measures import final_words
from benchmarks.mixed_stream import MixedStream, Spoken, outcome, words_of_each
from benchmarks.recordings import SAMPLES_PER_MS, near_silence
from benchmarks.sounds import SOUNDS
from benchmarks.telephone_conditions import key_tones

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from audiokv.streaming.captions import Word
    from benchmarks.measures import Arrival
    from benchmarks.mixed_stream import Outcome
    from benchmarks.recordings import FloatArray, Recording

HOLD_SOUNDS = ("hold tone", "music-like", "ringing tone", "digital silence")
KEYS_PRESSED = "keys pressed"
SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 700, 3_000
SHORTEST_HOLD_MS, LONGEST_HOLD_MS = 15_000, 45_000
N_BETWEEN = (2, 5)  # recordings between two hold parts
TAIL_MS = 2_000
EDGE_MS = 200  # by which a word of speech may reach into what comes next


@dataclass(frozen=True, slots=True)
class Hold:
    """A part of a call without a word in it.

    Attributes:
        name: What is heard instead.
        start_ms: Where it begins.
        end_ms: Where it ends.
    """

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class LongCall:
    """A call and what is in it.

    Attributes:
        stream: Its audio and the recordings in it.
        holds: The parts without a word, in order.
    """

    stream: MixedStream
    holds: tuple[Hold, ...]


class _Tape:
    """A call as it grows."""

    def __init__(self) -> None:
        self.parts: list[FloatArray] = []
        self._n_samples = 0

    @property
    def end_ms(self) -> float:
        return self._n_samples / SAMPLES_PER_MS

    def add(self, samples: FloatArray) -> None:
        self.parts.append(samples)
        self._n_samples += len(samples)


def long_call(recordings: Sequence[Recording], at_least_ms: float, seed: int = 0) -> LongCall:
    """Put recordings behind each other, in random order, with pauses and hold parts between them.

    Args:
        recordings: What is said, again and again.
        at_least_ms: How long the call is; it ends with the recording or hold that reaches this.
        seed: Decides.
    """
    chance = np.random.default_rng(seed)
    tape = _Tape()
    spoken: list[Spoken] = []
    holds: list[Hold] = []
    order: list[int] = []
    sounds = {name: SOUNDS[name](LONGEST_HOLD_MS * SAMPLES_PER_MS) for name in HOLD_SOUNDS}
    n_until_hold = int(chance.integers(*N_BETWEEN))
    while tape.end_ms < at_least_ms:
        pause_ms = int(chance.integers(SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS))
        tape.add(near_silence(pause_ms * SAMPLES_PER_MS, len(tape.parts)))
        if n_until_hold == 0:
            holds.append(_hold(tape, sounds, len(holds), chance))
            n_until_hold = int(chance.integers(*N_BETWEEN))
            continue
        order = order or chance.permutation(len(recordings)).tolist()
        recording = recordings[order.pop()]
        start_ms = tape.end_ms
        tape.add(recording.samples())
        spoken.append(Spoken(recording, start_ms, tape.end_ms, pause_ms))
        n_until_hold -= 1
    tape.add(near_silence(TAIL_MS * SAMPLES_PER_MS, len(tape.parts)))
    return LongCall(MixedStream(np.concatenate(tape.parts), tuple(spoken)), tuple(holds))


def _hold(
    tape: _Tape, sounds: Mapping[str, FloatArray], number: int, chance: np.random.Generator
) -> Hold:
    """Add a hold part; its sounds take turns, and keys are pressed behind each round of them."""
    start_ms = tape.end_ms
    turn = number % (len(HOLD_SOUNDS) + 1)
    if turn == len(HOLD_SOUNDS):
        keys = "".join(chance.choice(list("0123456789*#"), 12))
        tape.add(key_tones(keys))
        return Hold(KEYS_PRESSED, start_ms, tape.end_ms)
    n_ms = int(chance.integers(SHORTEST_HOLD_MS, LONGEST_HOLD_MS))
    tape.add(sounds[HOLD_SOUNDS[turn]][: n_ms * SAMPLES_PER_MS])
    return Hold(HOLD_SOUNDS[turn], start_ms, tape.end_ms)


def _middle_ms(word: Word) -> float:
    return (word.start_ms + word.end_ms) / 2


def hold_of(word: Word, holds: Sequence[Hold]) -> Hold | None:
    """Return the hold part in which a word lies, more than `EDGE_MS` from its edges."""
    at_ms = _middle_ms(word)
    inside = (h for h in holds if h.start_ms + EDGE_MS <= at_ms <= h.end_ms - EDGE_MS)
    return next(inside, None)


def words_in_holds(
    arrivals: Sequence[Arrival], holds: Sequence[Hold]
) -> tuple[list[tuple[str, str]], int]:
    """Return what was said where nobody spoke.

    Args:
        arrivals: All captions.
        holds: The parts without a word.

    Returns:
        Each final word with the name of its part, and how many captions, partial or final, ever
        showed a word in one.
    """
    final = [
        (word.text, hold.name)
        for word in final_words(arrivals)
        if (hold := hold_of(word, holds)) is not None
    ]
    n_shown = sum(
        any(hold_of(word, holds) is not None for word in arrival.caption.words)
        for arrival in arrivals
    )
    return final, n_shown


def outcomes(
    call: LongCall, arrivals: Sequence[Arrival], alone: Mapping[str, str]
) -> list[Outcome]:
    """Hold what the call made of each recording against what a call of it alone does."""
    spoken = call.stream.spoken
    found = words_of_each(spoken, arrivals)
    return [
        outcome(
            one, [w for w in words if hold_of(w, call.holds) is None], alone[one.recording.name]
        )
        for one, words in zip(spoken, found, strict=True)
    ]
