"""A long stream of digits under a budget, heard in virtual time with a log of every step."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import psutil

from audiokv.models.base import StreamOptions
from benchmarks.columns import tell
from benchmarks.recordings import to_pcm
from benchmarks.virtual_stream import Piece, VirtualRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from audiokv.models.base import Hypothesis, Recognizer, RecognizerInfo, RecognizerStream
    from audiokv.streaming.audio_cache import CacheCounters
    from benchmarks.digit_streams import DigitStream
    from benchmarks.measures import Arrival
    from benchmarks.virtual_stream import Step, VirtualListener

MINUTE_MS = 60_000
_PIECE_SAMPLES = 160
_SHORTEST_STEP_MS = 100  # no more steps than that are noted


@runtime_checkable
class CountingStream(Protocol):
    """A stream that tells how often positions were moved and windows begun again."""

    n_reanchors: int
    n_restarts: int

    def cache_counters(self) -> CacheCounters | None:
        """Return what the audio cache holds."""


class Observed:
    """Implements ``Recognizer``; keeps hold of the stream that was opened last.

    Args:
        inner: The recogniser.
    """

    def __init__(self, inner: Recognizer) -> None:
        self._inner = inner
        self.stream: CountingStream | None = None

    @property
    def info(self) -> RecognizerInfo:
        """What the model is and can do."""
        return self._inner.info

    def open_stream(self, options: StreamOptions) -> RecognizerStream:
        """Return fresh state for one stream.

        Raises:
            TypeError: It does not count what is noted here.
        """
        stream = self._inner.open_stream(options)
        if not isinstance(stream, CountingStream):
            raise TypeError(f"a {type(stream).__name__} does not count its re-anchorings")
        self.stream = stream
        return stream

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise."""
        return self._inner.decode(streams)


@dataclass(slots=True)
class StepLog:
    """What was seen after each step; the room is taken beforehand, so that it does not grow.

    Attributes:
        n_steps: How many were noted.
        at_ms: When each was due, shape (room,), as all that follow.
        compute_ms: What it cost.
        rss_bytes: Memory of the process.
        held_slots: Rows of the cache.
        seen_slots: Rows read since the stream began.
        n_evictions: Evictions since then.
        n_reanchors: Moves of the positions since then.
        n_restarts: Windows begun again since then.
    """

    room: int
    n_steps: int = 0
    at_ms: NDArray[np.float64] = field(init=False)
    compute_ms: NDArray[np.float64] = field(init=False)
    rss_bytes: NDArray[np.int64] = field(init=False)
    held_slots: NDArray[np.int64] = field(init=False)
    seen_slots: NDArray[np.int64] = field(init=False)
    n_evictions: NDArray[np.int64] = field(init=False)
    n_reanchors: NDArray[np.int64] = field(init=False)
    n_restarts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Take the room; ones, so that the system hands the memory out now."""
        self.at_ms, self.compute_ms = np.ones(self.room), np.ones(self.room)
        self.rss_bytes = np.ones(self.room, np.int64)
        self.held_slots, self.seen_slots = self.rss_bytes.copy(), self.rss_bytes.copy()
        self.n_evictions = self.rss_bytes.copy()
        self.n_reanchors, self.n_restarts = self.rss_bytes.copy(), self.rss_bytes.copy()

    def take(self, step: Step, rss_bytes: int, stream: CountingStream) -> None:
        """Note a step.

        Raises:
            ValueError: The stream's cache has no bound.
        """
        counters = stream.cache_counters()
        if counters is None:
            raise ValueError("a cache without a budget counts nothing")
        at, made = self.n_steps, counters.n_evictions
        self.at_ms[at], self.compute_ms[at] = step.due_ms, step.compute_ms
        self.rss_bytes[at] = rss_bytes
        self.held_slots[at], self.seen_slots[at] = counters.held_slots, counters.seen_slots
        self.n_evictions[at] = made.hot + made.between_steps + made.in_pauses
        self.n_reanchors[at], self.n_restarts[at] = stream.n_reanchors, stream.n_restarts
        self.n_steps += 1

    def within(self, from_ms: float, to_ms: float) -> slice:
        """Return which steps were due in a part of the stream."""
        first, last = np.searchsorted(self.at_ms[: self.n_steps], (from_ms, to_ms))
        return slice(int(first), int(last))


@dataclass(slots=True)
class ObservedRun(VirtualRun):
    """Keeps final captions, and of each step some numbers.

    Attributes:
        log: The numbers.
        observed: Whose stream it is.
    """

    log: StepLog = field(default_factory=lambda: StepLog(0))
    observed: Observed | None = None
    _process: psutil.Process = field(default_factory=lambda: psutil.Process(os.getpid()))

    def take_caption(self, arrival: Arrival) -> None:
        """Keep it where it is final."""
        if arrival.caption.is_final:
            self.arrivals.append(arrival)

    def take_step(self, step: Step) -> None:
        """Note the step's numbers."""
        assert self.observed is not None
        assert self.observed.stream is not None
        self.log.take(step, self._process.memory_info().rss, self.observed.stream)
        if self.log.n_steps % 1000 == 0:
            tell(f"{step.due_ms / MINUTE_MS:.1f} min heard")


@dataclass(frozen=True, slots=True)
class LongRun:
    """A long stream that was heard.

    Attributes:
        stream: What was said.
        arrivals: Final captions.
        log: Numbers of each step.
        cpu_s_per_audio_s: Computing time over the audio's length.
        budget_slots: What may be held.
    """

    stream: DigitStream
    arrivals: Sequence[Arrival]
    log: StepLog
    cpu_s_per_audio_s: float
    budget_slots: int


def hear(
    stream: DigitStream, observed: Observed, listener: VirtualListener, budget_slots: int
) -> LongRun:
    """Hear a long stream.

    Args:
        stream: The audio.
        observed: What the listener listens with.
        listener: Runs the stream in virtual time.
        budget_slots: What may be held.
    """
    room = int(stream.duration_ms / _SHORTEST_STEP_MS) + 1000
    run = ObservedRun(log=StepLog(room), observed=observed)
    listener.listen_to(_pieces(stream), StreamOptions("en"), run)
    steps_ms = float(run.log.compute_ms[: run.log.n_steps].sum())
    return LongRun(
        stream,
        run.arrivals,
        run.log,
        (run.listen_ms + steps_ms) / run.duration_ms,
        budget_slots,
    )


def _pieces(stream: DigitStream) -> Iterator[Piece]:
    """Yield frames of 10 ms as they come; the audio is turned into bytes bit by bit."""
    for first in range(0, stream.samples.size, _PIECE_SAMPLES):
        samples = stream.samples[first : first + _PIECE_SAMPLES]
        yield Piece((first + _PIECE_SAMPLES) / 16.0, to_pcm(samples))
