"""One live stream made of a language's recordings, and the captions of each of them in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import AudioFormat
from benchmarks.live_stream import Speech, split
from benchmarks.measures import Arrival
from benchmarks.mixed_stream import Spoken
from benchmarks.recordings import SAMPLES_PER_MS, near_silence, to_pcm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.captions import Caption
    from benchmarks.recordings import FloatArray, Recording

SHORTEST_PAUSE_MS = 700  # over the session's own, so that no segment spans two recordings
LONGEST_PAUSE_MS = 3000
TAIL_MS = 2000
REPEAT_MARK = "#"


@dataclass(frozen=True, slots=True)
class JoinedStream:
    """A stream and what is said in it.

    Attributes:
        speech: The audio as a source sends it.
        spoken: The recordings in order; a repeated one has a number behind its name.
    """

    speech: Speech
    spoken: tuple[Spoken, ...]


def join(recordings: Sequence[Recording], at_least_ms: float, seed: int = 0) -> JoinedStream:
    """Put recordings of one language behind each other, again and again, with pauses.

    Args:
        recordings: What is said, in this order.
        at_least_ms: Whole rounds are added until the stream is that long.
        seed: Decides how long the pauses are.
    """
    chance = np.random.default_rng(seed)
    audio_format = AudioFormat()
    pieces: list[FloatArray] = []
    spoken: list[Spoken] = []
    n_samples, n_rounds = 0, 0
    while n_samples < at_least_ms * SAMPLES_PER_MS or not spoken:
        n_rounds += 1
        for recording in recordings:
            pause_ms = int(chance.integers(SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS))
            audio = recording.samples()
            pieces += [near_silence(pause_ms * SAMPLES_PER_MS, len(spoken)), audio]
            start_ms = n_samples / SAMPLES_PER_MS + pause_ms
            end_ms = start_ms + audio.size / SAMPLES_PER_MS
            named = replace(recording, name=f"{recording.name}{REPEAT_MARK}{n_rounds}")
            spoken.append(Spoken(named, start_ms, end_ms, pause_ms))
            n_samples += pause_ms * SAMPLES_PER_MS + audio.size
    pieces.append(near_silence(TAIL_MS * SAMPLES_PER_MS, len(spoken)))
    pcm = to_pcm(np.concatenate(pieces))
    return JoinedStream(Speech(audio_format, tuple(split(pcm, audio_format))), tuple(spoken))


def arrivals_of_each(
    spoken: Sequence[Spoken], arrivals: Sequence[Arrival]
) -> dict[str, list[Arrival]]:
    """Return the captions of each recording by its name, as if it had been a stream of its own.

    A segment goes to the recording nearest to its middle, all its revisions with it; times count
    from the recording's start.
    """
    found: dict[str, list[Arrival]] = {one.recording.name: [] for one in spoken}
    middles_ms = np.array([(one.start_ms + one.end_ms) / 2 for one in spoken])
    lengths_ms = np.array([one.end_ms - one.start_ms for one in spoken])
    latest = {arrival.caption.segment: arrival.caption for arrival in arrivals}
    for arrival in arrivals:
        caption = latest[arrival.caption.segment]
        middle_ms = (caption.start_ms + caption.end_ms) / 2
        outside_ms = np.abs(middles_ms - middle_ms) - lengths_ms / 2
        one = spoken[int(outside_ms.argmin())]
        found[one.recording.name].append(
            Arrival(arrival.at_ms - one.start_ms, _shifted(arrival.caption, round(one.start_ms)))
        )
    return found


def _shifted(caption: Caption, by_ms: int) -> Caption:
    return replace(
        caption,
        start_ms=caption.start_ms - by_ms,
        end_ms=caption.end_ms - by_ms,
        words=tuple(
            replace(word, start_ms=word.start_ms - by_ms, end_ms=word.end_ms - by_ms)
            for word in caption.words
        ),
    )


def original_name(name: str) -> str:
    """Return the name a repeated recording has in the manifest."""
    return name.partition(REPEAT_MARK)[0]
