"""When each word of a recording truly ends: what latencies are measured from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import StreamOptions
from benchmarks.measures import reference_ends_ms
from benchmarks.recordings import SAMPLES_PER_MS

if TYPE_CHECKING:
    import numpy.typing as npt

    from audiokv.models.base import Recognizer
    from audiokv.streaming.captions import Word
    from benchmarks.recordings import Recording

    FloatArray = npt.NDArray[np.float32]

FRAME_MS = 10
FLOOR_DB = 30.0  # a frame this far below the recording's loud ones is no longer speech
_LOUD_PERCENTILE = 95


def align_offline(recognizer: Recognizer, recording: Recording) -> tuple[Word, ...]:
    """Return the words of one pass over the whole recording, its language given.

    Raises:
        SystemExit: The recording is longer than the model's window.
    """
    samples = recording.samples()
    if samples.size > recognizer.info.max_window_ms * SAMPLES_PER_MS:
        raise SystemExit(
            f"{recording.name} is too long to be aligned in one pass; "
            "give the times of its words in the manifest."
        )
    stream = recognizer.open_stream(StreamOptions(language=recording.language))
    stream.open(0)
    stream.append(samples)
    return recognizer.decode([stream])[0].words


def sounding_end_ms(samples: FloatArray, start_ms: float, end_ms: float) -> float:
    """Return where sound ends within a span.

    An aligner lets a word last through the pause after it; listeners do not.

    Args:
        samples: The whole recording, shape (n,), 16 kHz.
        start_ms: Start of the word; the result is never before it.
        end_ms: Its end as aligned.
    """
    n_frames = samples.size // (FRAME_MS * SAMPLES_PER_MS)
    if not n_frames:
        return end_ms
    frames = samples[: n_frames * FRAME_MS * SAMPLES_PER_MS].reshape(n_frames, -1)
    levels = np.sqrt(np.mean(np.square(frames), axis=1))
    floor = np.percentile(levels, _LOUD_PERCENTILE) * 10 ** (-FLOOR_DB / 20)
    first = min(int(start_ms // FRAME_MS), n_frames)
    last = min(int(-(-end_ms // FRAME_MS)), n_frames)
    sounding = np.flatnonzero(levels[first:last] >= floor)
    if not sounding.size:
        return end_ms
    return min(end_ms, float((first + sounding[-1] + 1) * FRAME_MS))


def aligned_ends(recording: Recording, words: tuple[Word, ...]) -> tuple[tuple[str, float], ...]:
    """Return aligned words with the end of their sound in ms."""
    samples = recording.samples()
    return tuple((w.text, sounding_end_ms(samples, w.start_ms, w.end_ms)) for w in words)


def alignment_errors_ms(recording: Recording, words: tuple[Word, ...]) -> list[float]:
    """Return aligned less true end of each word, for a recording whose true ends are known."""
    aligned = aligned_ends(recording, words)
    true = reference_ends_ms([w for w, _ in aligned], recording.word_ends, recording.language)
    return [end - t for (_, end), t in zip(aligned, true, strict=True) if t is not None]
