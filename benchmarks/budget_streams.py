"""What each step of a live stream costs, part by part, with the real model in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from audiokv.models.base import StreamOptions
from audiokv.streaming.stabilizer import ShowOptions
from benchmarks.budget_parts import Part, measured_part
from benchmarks.measures import reference_ends_ms, word_timings
from benchmarks.stopwatch import Stopwatch
from benchmarks.virtual_stream import VirtualListener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from audiokv.models.base import Hypothesis, Recognizer, RecognizerStream
    from audiokv.streaming.session_options import SessionOptions
    from audiokv.streaming.voice_activity import VoiceDetector
    from benchmarks.measures import Arrival
    from benchmarks.stopwatch import Watched

    Said = tuple[NDArray[np.float32], str | None]

RECOGNISER = "rest of the recogniser"
SESSION = "session, rules and caption"


class TimedRecognizer:
    """A recogniser whose every decode is a row of a stopwatch.

    Args:
        recognizer: The loaded model.
        stopwatch: Takes the rows.
    """

    def __init__(self, recognizer: Recognizer, stopwatch: Stopwatch) -> None:
        self._recognizer = recognizer
        self._stopwatch = stopwatch
        self.info = recognizer.info

    def open_stream(self, options: StreamOptions) -> RecognizerStream:
        """Return fresh state for one stream."""
        return self._recognizer.open_stream(options)

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows."""
        self._stopwatch.begin_row()
        with self._stopwatch.part(RECOGNISER):
            found = self._recognizer.decode(streams)
        self._stopwatch.end_row()
        return found


@dataclass(slots=True)
class StepCosts:
    """What the steps of some streams cost.

    Attributes:
        rows: Milliseconds of each part, of each step after which a caption came.
        calls: How often each part was entered in it.
        beside_ms: What runs after the captions are out, mean of each stream.
        step_ms: Whole computing time of each of these steps.
        shown_ms: First showing of each final word, less its end as the recogniser tells it.
        arrivals: Captions of each stream.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    calls: list[dict[str, int]] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    shown_ms: list[float] = field(default_factory=list)
    arrivals: list[list[Arrival]] = field(default_factory=list)

    def parts(self, notes: dict[str, str]) -> list[Part]:
        """Return each part, in the order of the notes; what has none comes last.

        Raises:
            ValueError: No step brought a caption.
        """
        if not self.rows:
            raise ValueError("no step brought a caption, so nothing was measured")
        found = {name for row in self.rows for name in row}
        ordered = [*(name for name in notes if name in found), *sorted(found - set(notes))]
        return [
            measured_part(name, [row.get(name, 0.0) for row in self.rows], notes.get(name, ""))
            for name in ordered
        ]

    def calls_of(self, name: str) -> list[int]:
        """Return how often a part was entered in each step."""
        return [calls.get(name, 0) for calls in self.calls]


def shown_after_true_ends(
    arrivals: Sequence[Arrival], words: Sequence[str], ends_ms: Sequence[float]
) -> list[float]:
    """Return the first showing of each recognised word, less the end of the word spoken there.

    Args:
        arrivals: What a stream said.
        words: What was spoken.
        ends_ms: Where each of these words ends.
    """
    timings = word_timings(arrivals)
    spoken = list(zip(words, ends_ms, strict=True))
    ends = reference_ends_ms([timing.word.text for timing in timings], spoken, "en")
    return [
        timing.shown_ms - end_ms
        for timing, end_ms in zip(timings, ends, strict=True)
        if end_ms is not None
    ]


def known_arrivals(
    recognizer: Recognizer,
    open_detector: Callable[[], VoiceDetector],
    samples: NDArray[np.float32],
    language: str | None,
    options: SessionOptions,
) -> list[Arrival]:
    """Return captions that show a word with the first hypothesis that has it, at no cost of time.

    Args:
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        samples: Shape (n,), 16 kHz mono.
        language: ISO 639-1 code.
        options: How the stream is cut; its rule for showing words is put aside.
    """
    at_once = replace(options, show=ShowOptions(guard_ms=0, sure=0.0))
    listener = VirtualListener(recognizer, open_detector, at_once, compute_s=lambda: 0.0)
    return listener.listen(samples, language).arrivals


def listen_to_streams(
    recognizer: Recognizer,
    open_detector: Callable[[], VoiceDetector],
    said: Sequence[Said],
    watched: Sequence[Watched],
    options: SessionOptions,
) -> StepCosts:
    """Run streams and time the parts of their steps.

    Args:
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        said: Audio of each stream, shape (n,), 16 kHz mono, and its language.
        watched: The parts.
        options: How streams are cut.
    """
    costs = StepCosts()
    rest = (type(recognizer.open_stream(StreamOptions())), "rest", "rest")
    for samples, language in said:
        watch, beside = Stopwatch(), Stopwatch()
        listener = VirtualListener(TimedRecognizer(recognizer, watch), open_detector, options)
        beside.begin_row()
        with watch.watching(watched), beside.watching([rest]):
            run = listener.listen(samples, language)
        n_rests = sum(calls.get("rest", 0) for calls in beside.calls)
        costs.beside_ms.append(sum(row.get("rest", 0.0) for row in beside.rows) / max(n_rests, 1))
        captioned_ms = {arrival.at_ms for arrival in run.arrivals}
        for step, row, calls in zip(run.steps, watch.rows, watch.calls, strict=True):
            if step.due_ms + step.lag_ms in captioned_ms:
                beside_ms = step.compute_ms - sum(row.values())
                costs.rows.append({**row, SESSION: max(0.0, beside_ms)})
                costs.calls.append(calls)
                costs.step_ms.append(step.compute_ms)
        costs.shown_ms += [
            timing.shown_ms - timing.word.end_ms for timing in word_timings(run.arrivals)
        ]
        costs.arrivals.append(run.arrivals)
    return costs
