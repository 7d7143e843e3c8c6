"""A recogniser for the tests of the session, and audio for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import Hypothesis, RecognizerInfo, StreamOptions
from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption, Word
from audiokv.streaming.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.streaming.captions import Event
    from audiokv.streaming.session_options import SessionOptions

LOUD = 8_000
COUNTERS = CacheCounters(
    "uniform",
    9,
    5,
    6,
    PoolSlots(3, 1, 1),
    Evictions(0, 2, 1),
    5_120,
    LeftSlots(0, 3, 1, 0),
    ChosenSlots(1, 2, 0),
)


def info(*, aligns: bool = True, context_gap_ms: int = 0) -> RecognizerInfo:
    return RecognizerInfo("script", 20, frozenset({"en"}), aligns, 30_000, context_gap_ms)


class Loudness:
    def probability(self, samples: NDArray[np.float32]) -> float:
        return float(np.abs(samples).max() > 0.01)

    def reset(self) -> None:
        pass


@dataclass
class Script:
    """A recogniser that hears the words of a timetable once their end lies in its window."""

    timetable: Sequence[tuple[str, int, int]]
    confidence: float = 1.0
    is_settled: bool = True
    word_confidence: float = 0.9
    language: str = "en"
    opened: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    options: list[StreamOptions] = field(default_factory=list)
    heard: list[tuple[int, int]] = field(default_factory=list)
    speakers: list[str | None] = field(default_factory=list)
    start_ms: int = 0
    end_ms: int = 0
    n_committed: int = 0
    n_rests: int = 0

    def open(self, at_ms: int) -> None:
        self.opened.append(at_ms)
        self.start_ms = self.end_ms = at_ms

    def begin_segment(self, at_ms: int) -> None:
        self.segments.append(at_ms)

    def append(self, samples: NDArray[np.float32], speaker: str | None = None) -> None:
        self.end_ms += len(samples) // 16
        self.speakers.append(speaker)

    def update(self, options: StreamOptions) -> None:
        self.options.append(options)

    def commit(self, n_words: int) -> None:
        self.n_committed += n_words

    def rest(self) -> None:
        self.n_rests += 1

    def cache_counters(self) -> CacheCounters | None:
        return COUNTERS if self.n_rests else None

    def decode(self) -> Hypothesis:
        self.heard.append((self.start_ms, self.end_ms))
        words = tuple(
            Word(text, start, end, self.word_confidence)
            for text, start, end in self.timetable[self.n_committed :]
            if end <= self.end_ms
        )
        return Hypothesis(words, self.language, self.confidence, self.is_settled)


def audio(*parts: tuple[int, int]) -> bytes:
    """Return pcm_s16le, 16 kHz mono, of (amplitude, ms) parts."""
    return b"".join(np.full(16 * ms, level, dtype="<i2").tobytes() for level, ms in parts)


def spoken(n_words: int, *, from_ms: int = 0) -> list[tuple[str, int, int]]:
    return [(f"w{i}", from_ms + 400 * i, from_ms + 400 * i + 300) for i in range(n_words)]


def session_of(
    script: Script,
    options: SessionOptions | None = None,
    *,
    aligns: bool = True,
    context_gap_ms: int = 0,
) -> Session:
    return Session(
        fmt=AudioFormat(),
        stream=script,
        info=info(aligns=aligns, context_gap_ms=context_gap_ms),
        detector=Loudness(),
        options=options,
    )


def drain(session: Session, script: Script) -> list[Event]:
    events = session.prepare()
    while session.is_step_due:
        assert session.prepare() == []  # nothing moves before the step was taken
        events += session.apply(script.decode())
        events += session.prepare()
    return events


def run(
    script: Script, pcm: bytes, options: SessionOptions | None = None, *, aligns: bool = True
) -> list[Event]:
    session = session_of(script, options, aligns=aligns)
    session.push(pcm)
    session.stop()
    events = drain(session, script)
    assert session.is_done
    return events


def captions(events: Sequence[Event]) -> list[Caption]:
    return [e for e in events if isinstance(e, Caption)]


def finals(events: Sequence[Event]) -> list[str]:
    return [c.text for c in captions(events) if c.is_final]
