"""One stream as the event loop sees it: what came in, how far the worker is, and who listens."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from audiokv.server.hub import Hub
from audiokv.server.wire import pack
from audiokv.server.worker import Job, Request, Said
from audiokv.streaming.audio_format import SILENCE_BYTE
from audiokv.streaming.messages import (
    MAX_METADATA,
    MAX_METADATA_CHARS,
    Done,
    Notice,
    Progress,
)
from audiokv.streaming.rate_check import RateCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from audiokv.models.base import StreamOptions
    from audiokv.server.clock import Clock
    from audiokv.server.worker import Report, Worker
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.audio_format import AudioFormat
    from audiokv.streaming.channels import ChannelGroup
    from audiokv.streaming.recognition_counts import RecognitionCounts

MAX_PENDING_COMMANDS = 8_192


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a source asked for.

    Attributes:
        name: Public name of the stream, for viewers and the log.
        fmt: Format of the audio.
        options: Language, prompt and profile.
        metadata: What the source's protocol says about it, such as the number of a call.
    """

    name: str
    fmt: AudioFormat
    options: StreamOptions
    metadata: Mapping[str, str] = field(default_factory=dict)


class LiveStream:
    """Counts audio in whole samples, hands it to the worker, and spreads what comes back.

    Args:
        request: What the source asked for.
        worker: Where the audio goes.
        open_session: Makes the sessions of its channels; called in the worker thread.
        clock: The server's clock.
        on_over: Called once, when the stream has said everything or failed.
    """

    def __init__(
        self,
        request: StreamRequest,
        *,
        worker: Worker,
        open_session: Callable[[], ChannelGroup],
        clock: Clock,
        on_over: Callable[[LiveStream], None],
    ) -> None:
        self.name = request.name
        self.fmt = request.fmt
        self.options = request.options
        self.metadata = request.metadata
        self.hub = Hub()
        self.is_stopping = False
        self.is_over = False
        self.has_failed = False
        self.on_moved: Callable[[], object] = lambda: None  # called after news from the worker
        self.processed_ms = 0
        self._worker = worker
        self._job = Job(request.name, open_session, self.take_report, lambda: self._known_lag_ms)
        self._clock = clock
        self._started_s = clock.now_s()
        self._on_over = on_over
        self._rate_check = RateCheck(request.fmt)
        self._accepted_bytes = 0
        self._known_lag_ms = 0  # as of the last news; the worker thread has no event loop's clock
        self._part = b""  # of a sample whose other bytes are still to come
        self._has_room = asyncio.Event()
        self._finalizing: deque[Callable[[], object]] = deque()
        self._n_finalized = 0
        self._cache: CacheCounters | None = None
        self._recognition: RecognitionCounts | None = None

    @property
    def told(self) -> dict[str, str] | None:
        """What listeners are told of the source, no more than they take; None for nothing."""
        items = islice(self.metadata.items(), MAX_METADATA)
        told = {name[:MAX_METADATA_CHARS]: value[:MAX_METADATA_CHARS] for name, value in items}
        return told or None

    @property
    def received_samples(self) -> int:
        """Samples per channel held, at the source's rate."""
        return self._accepted_bytes // self.fmt.frame_bytes

    @property
    def received_ms(self) -> int:
        """Length of the audio held."""
        return self.received_samples * 1000 // self.fmt.sample_rate_hz

    @property
    def lag_ms(self) -> int:
        """Audio held and not yet recognised."""
        return max(0, self.received_ms - self.processed_ms)

    @property
    def live_lag_ms(self) -> int:
        """How far recognition is behind real time; a file sent ahead of real time has none."""
        age_ms = int((self._clock.now_s() - self._started_s) * 1000)
        return max(0, min(self.received_ms, age_ms) - self.processed_ms)

    @property
    def ahead_ms(self) -> int:
        """Audio not yet recognised that came before its time; live audio has none."""
        return self.lag_ms - self.live_lag_ms

    def progress(self) -> Progress:
        """Return how far the stream is."""
        return Progress(
            self.received_ms,
            self.received_samples,
            self.processed_ms,
            self.lag_ms,
            self._cache,
            self._recognition,
        )

    def accept(self, audio: bytes) -> None:
        """Take encoded audio, split anywhere."""
        notice = self._rate_check.push(self._clock.now_s(), len(audio))
        if notice is not None:
            self.hub.publish([Said(notice, pack(notice))])
        joined = self._part + audio
        n_whole = len(joined) - len(joined) % self.fmt.frame_bytes
        self._part = joined[n_whole:]
        if n_whole:
            self._accepted_bytes += n_whole
            self._known_lag_ms = self.live_lag_ms
            self._worker.submit(self._job, joined[:n_whole])

    def lose(self, duration_ms: int) -> None:
        """Let the stream's clock go on over audio that is known to be lost.

        Silence takes its place, and the source is told. It costs as much memory as audio does:
        take long gaps piece by piece, with `room` between the pieces.
        """
        notice = Notice("audio_gap", f"{duration_ms} ms of audio were lost at {self.received_ms}.")
        self.hub.publish([Said(notice, pack(notice))])
        self._part = b""
        n_samples = duration_ms * self.fmt.sample_rate_hz // 1000
        self.accept(SILENCE_BYTE[self.fmt.encoding] * (n_samples * self.fmt.frame_bytes))

    def drop_part(self) -> None:
        """Forget the beginning of a sample whose rest will never come: the connection was lost."""
        self._part = b""

    def update(self, options: StreamOptions) -> None:
        """Pass new wishes of the source on."""
        self.options = options
        self._worker.submit(self._job, options)

    def finalize(self, on_said: Callable[[], object] = lambda: None) -> None:
        """End the open segment here.

        Args:
            on_said: Called on the event loop when everything up to here was said; never called
                when the stream ends before.
        """
        self._finalizing.append(on_said)
        self._worker.submit(self._job, Request.FINALIZE)

    def stop(self) -> None:
        """Let the stream end after the audio held; asking again changes nothing."""
        if not self.is_stopping:
            self.is_stopping = True
            self._worker.submit(self._job, Request.STOP)

    def drop(self) -> None:
        """End the stream without another word."""
        self._worker.submit(self._job, Request.DROP)
        self.is_over = True
        self._has_room.set()

    async def room(self, max_backlog_ms: int, max_ahead_ms: float = math.inf) -> None:
        """Wait until the worker has less than a backlog to do, or the stream is over.

        Args:
            max_backlog_ms: Audio that may wait for recognition.
            max_ahead_ms: Audio that may wait for recognition before its time in real time.
        """
        while not self.is_over and (
            self.lag_ms > max_backlog_ms
            or self.ahead_ms > max_ahead_ms
            or self._job.n_pending > MAX_PENDING_COMMANDS
        ):
            self._has_room.clear()
            await self._has_room.wait()

    def take_report(self, report: Report) -> None:
        """Take news from the worker; called on the event loop."""
        if self.is_over:
            return
        self.processed_ms = max(self.processed_ms, report.processed_ms)
        self._known_lag_ms = self.live_lag_ms
        if report.cache is not None:
            self._cache = report.cache
        if report.recognition is not None:
            self._recognition = report.recognition
        self.hub.publish(report.news)
        self._tell_finalized(report.n_finalized)
        self._has_room.set()
        self.on_moved()
        if report.failure is not None:
            self.is_over = self.has_failed = True
            self.hub.fail(report.failure)
        elif report.is_done:
            self.is_over = True
            self.processed_ms = max(self.processed_ms, self.received_ms)
            self.hub.report(self.progress())
            self.hub.end(Done(self.received_ms, self.hub.n_segments))
        if self.is_over:
            self._on_over(self)

    def _tell_finalized(self, n_finalized: int) -> None:
        while self._n_finalized < n_finalized:
            self._n_finalized += 1
            self._finalizing.popleft()()
