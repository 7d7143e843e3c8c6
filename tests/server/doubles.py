"""Stand-ins for what the server's tests do not test: model, voice detector, clock and socket."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from websockets.exceptions import ConnectionClosedError

from audiokv.models.base import Hypothesis, RecognizerInfo, StreamOptions
from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption, Event, Word
from audiokv.streaming.session import Session
from audiokv.streaming.session_options import SessionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from audiokv.models.base import FloatArray, RecognizerStream

INFO = RecognizerInfo(
    name="scripted",
    slot_ms=20,
    languages=frozenset({"de", "en"}),
    aligns=True,
    max_window_ms=30_000,
)
CELL_MS = 250
_CELL_SAMPLES = 16 * CELL_MS
NEVER_MERGE_MS = 600_000
COUNTERS = CacheCounters(
    policy="uniform",
    seen_slots=700,
    held_slots=90,
    budget_slots=100,
    pools=PoolSlots(60, 25, 5),
    n_evictions=Evictions(1, 20, 3),
    held_bytes=552_960,
    left_slots=LeftSlots(forced=4, ahead=500, expired=106, shared=0),
    chosen_slots=ChosenSlots(committed=400, silence=80, speech=24),
)


@dataclass(slots=True)
class ScriptedStream:
    """Hears words in audio: one for each cell of 250 ms, named after the cell's samples.

    A sample lost, doubled or taken from another stream therefore changes the text.
    """

    options: StreamOptions
    at_ms: int = 0
    audio: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    committed_ms: int = 0
    words: tuple[Word, ...] = ()
    n_rests: int = 0

    def open(self, at_ms: int) -> None:
        self.at_ms = self.committed_ms = at_ms
        self.audio = np.zeros(0, np.float32)

    def begin_segment(self, at_ms: int) -> None:
        pass

    def append(self, samples: FloatArray, speaker: str | None = None) -> None:  # noqa: ARG002  the seam
        self.audio = np.concatenate([self.audio, samples])

    def commit(self, n_words: int) -> None:
        self.committed_ms = self.words[n_words - 1].end_ms
        self.words = self.words[n_words:]

    def update(self, options: StreamOptions) -> None:
        self.options = options

    def rest(self) -> None:
        self.n_rests += 1

    def cache_counters(self) -> CacheCounters | None:
        return replace(COUNTERS, seen_slots=self.n_rests) if self.is_bounded else None

    @property
    def is_bounded(self) -> bool:
        return self.options.prompt == "count"

    def hear(self) -> tuple[Word, ...]:
        end_ms = self.at_ms + len(self.audio) // 16
        first = -(-max(self.committed_ms, self.at_ms) // CELL_MS)
        words = (self._word(cell) for cell in range(first, end_ms // CELL_MS))
        self.words = tuple(word for word in words if word is not None)
        return self.words

    def _word(self, cell: int) -> Word | None:
        start = cell * _CELL_SAMPLES - self.at_ms * 16
        samples = np.round(self.audio[start : start + _CELL_SAMPLES] * 32_768).astype(int)
        if np.abs(samples).mean() < 100:
            return None
        weights = np.arange(1, len(samples) + 1)
        text = f"{self.options.prompt}{cell}.{int((samples * weights).sum()) % 10_007}"
        return Word(text, cell * CELL_MS, (cell + 1) * CELL_MS, confidence=0.9)


class ScriptedRecognizer:
    """A recogniser whose text follows from the audio alone.

    Attributes:
        gate: Recognition waits while this is not set.
        batches: Size of each batch decoded.
        is_asked: Set when recognition was first asked for.
    """

    info = INFO

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[int] = []
        self.is_asked = threading.Event()

    def open_stream(self, options: StreamOptions) -> ScriptedStream:
        if options.prompt == "refuse to open":
            raise RuntimeError("secret words")
        return ScriptedStream(options)

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        self.is_asked.set()
        self.gate.wait()
        self.batches.append(len(streams))
        hypotheses = []
        for stream in streams:
            assert isinstance(stream, ScriptedStream)
            if stream.options.prompt == "break":
                raise RuntimeError("secret words")
            hypotheses.append(Hypothesis(stream.hear(), stream.options.language))
        return hypotheses


class LoudnessDetector:
    """Takes everything that is not silent for a voice."""

    def probability(self, samples: FloatArray) -> float:
        return float(np.abs(samples).max() > 0.01)

    def reset(self) -> None:
        pass


def speech(seed: int, *, seconds: float, pause_every_s: float = 1.5) -> bytes:
    """Return pcm_s16le, 16 kHz mono: bursts of noise with pauses of 0.6 s between them."""
    rng = np.random.default_rng(seed)
    samples = rng.integers(-8_000, 8_000, int(seconds * 16_000)).astype("<i2")
    for start in np.arange(pause_every_s, seconds, pause_every_s + 0.6):
        samples[int(start * 16_000) : int((start + 0.6) * 16_000)] = 0
    return samples.tobytes()


def silence(*, seconds: float) -> bytes:
    """Return silent pcm_s16le, 16 kHz mono."""
    return bytes(2 * int(seconds * 16_000))


def undisturbed(
    audio: bytes, options: StreamOptions | None = None, fmt: AudioFormat | None = None
) -> list[Event]:
    """Return what a session says about audio when nothing disturbs it."""
    recognizer = ScriptedRecognizer()
    session = Session(
        fmt=fmt or AudioFormat(),
        stream=recognizer.open_stream(options or StreamOptions()),
        info=INFO,
        detector=LoudnessDetector(),
        options=SessionOptions(max_lag_ms=NEVER_MERGE_MS),
    )
    session.push(audio)
    session.stop()
    events = session.prepare()
    while session.is_step_due:
        (hypothesis,) = recognizer.decode([session.stream])
        events += session.apply(hypothesis)
        events += session.prepare()
    return events


def captions_in(events: Sequence[object]) -> list[Caption]:
    """Return the captions among events or messages."""
    return [event for event in events if isinstance(event, Caption)]


class ManualClock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, ManualTimer]] = []

    def now_s(self) -> float:
        return self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._due, (self._now_s + delay_s, next(self._order), timer))
        return timer

    @property
    def n_waiting(self) -> int:
        return sum(not timer.is_cancelled for _, _, timer in self._due)

    async def advance(self, seconds: float) -> None:
        """Move on, letting everything happen that is due on the way, in order."""
        end_s = self._now_s + seconds
        await settle()
        while self._due and self._due[0][0] <= end_s:
            self._now_s, _, timer = heapq.heappop(self._due)
            if not timer.is_cancelled:
                timer.callback()
            await settle()
        self._now_s = end_s


@dataclass(slots=True)
class ManualTimer:
    """A call that a manual clock will make."""

    callback: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


async def settle(rounds: int = 20) -> None:
    """Let tasks that can run without the outside world run."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, letting the event loop turn; the caller's timeout bounds it."""
    while not is_so():  # noqa: ASYNC110  what is waited for has no event of its own
        await asyncio.sleep(0)


class FakeWire:
    """A connection to nobody.

    Attributes:
        sent: What went out.
        closed: Code and reason of the close, or None.
        can_send: Sending waits while this is not set.
        can_close: Closing waits while this is not set.
    """

    name = "fake"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self._is_aborted = False
        self.is_close_acknowledged = False
        self.can_send = asyncio.Event()
        self.can_send.set()
        self.can_close = asyncio.Event()
        self.can_close.set()
        self._gone = asyncio.Event()
        self._incoming: asyncio.Queue[str | bytes] = asyncio.Queue()

    def feed(self, message: str | bytes) -> None:
        """Let a message come in."""
        self._incoming.put_nowait(message)

    @property
    def n_unread(self) -> int:
        return self._incoming.qsize()

    def vanish(self) -> None:
        """Lose the connection."""
        self._gone.set()

    async def receive(self) -> str | bytes:
        getting = asyncio.ensure_future(self._incoming.get())
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait([getting, gone], return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            raise ConnectionClosedError(None, None)
        finally:
            getting.cancel()
            gone.cancel()

    async def send(self, packed: bytes) -> None:
        if self._gone.is_set():
            raise ConnectionClosedError(None, None)
        await self.can_send.wait()
        self.sent.append(packed)

    async def close(self, code: int, reason: str) -> None:
        await self.can_close.wait()
        self.closed = (code, reason)
        self.is_close_acknowledged = True
        self._gone.set()

    def abort(self) -> None:
        self._is_aborted = True
        self._gone.set()

    def was_aborted(self) -> bool:
        return self._is_aborted
