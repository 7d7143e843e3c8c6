"""The one thread that computes: framing, voice activity and recognition of every stream."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate
from typing import TYPE_CHECKING

from audiokv.models.base import StreamOptions
from audiokv.server.failure_log import log_failure
from audiokv.server.refusals import RefusalError, as_refusal, internal_refusal
from audiokv.server.wire import pack
from audiokv.streaming.errors import AudioKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from audiokv.models.base import Hypothesis, Recognizer
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.captions import Event
    from audiokv.streaming.channels import ChannelGroup
    from audiokv.streaming.recognition_counts import RecognitionCounts

logger = logging.getLogger(__name__)

REPORT_EVERY_MS = 100
REPORT_EVERY_COMMANDS = 1_000


class Request(Enum):
    """What a stream may be asked besides taking audio and options."""

    FINALIZE = auto()
    STOP = auto()
    DROP = auto()


Command = bytes | StreamOptions | Request


@dataclass(frozen=True, slots=True)
class Said:
    """An event and its message, encoded once, in the worker thread, for all receivers."""

    event: Event
    packed: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """News of one stream from the worker.

    Attributes:
        news: What the stream said since the report before.
        processed_ms: Position up to which the stream has been decided.
        is_done: Whether the stream was stopped and has said everything.
        cache: What its audio cache holds; None where that is not bounded or not known.
        recognition: What went wrong with its recognition so far; None while all is well.
        n_finalized: Requests to finalize after which everything was said, since the start.
        failure: Why the stream ended early, or None.
    """

    news: tuple[Said, ...]
    processed_ms: int
    is_done: bool = False
    cache: CacheCounters | None = None
    recognition: RecognitionCounts | None = None
    n_finalized: int = 0
    failure: RefusalError | None = None


class Job:
    """One stream's place in the worker.

    Args:
        name: Public name of the stream, for the log.
        open_session: Makes the sessions of its channels; called in the worker thread.
        deliver: Takes reports; called on the event loop.
        live_lag_ms: Tells how far the stream is behind real time; called in the worker thread.
    """

    def __init__(
        self,
        name: str,
        open_session: Callable[[], ChannelGroup],
        deliver: Callable[[Report], None],
        live_lag_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self.open_session = open_session
        self.deliver = deliver
        self.live_lag_ms = live_lag_ms
        self.commands: list[Command] = []  # guarded by the worker's lock
        self.session: ChannelGroup | None = None  # this and the rest: worker thread only
        self.is_over = False
        self.is_waiting = False
        self.reported_ms = 0
        self.finalize_ms: deque[int] = deque()  # where finalizing was asked for and is not done
        self.n_finalized = 0

    def count_finalized(self, session: ChannelGroup) -> int:
        """Return for how many requests to finalize everything was said; call after ``prepare``.

        A closing step keeps the position where finalizing was asked for, so past it, or at it
        without a step due, all is said.
        """
        at_ms = session.processed_ms - session.is_step_due
        n_before = len(self.finalize_ms)
        while self.finalize_ms and self.finalize_ms[0] <= at_ms:
            self.finalize_ms.popleft()
        n_new = n_before - len(self.finalize_ms)
        self.n_finalized += n_new
        return n_new

    @property
    def n_pending(self) -> int:
        """Commands not yet taken by the worker."""
        return len(self.commands)


class Worker:
    """Runs due recognition steps in the order in which they became due.

    A stream has at most one step waiting (one a channel, taken together), so a sender far ahead of
    real time cannot keep live ones waiting for longer than one step. An error inside a session
    ends its stream only.

    Args:
        recognizer: The loaded model.
        call_soon: Runs a function on the event loop; may be called from any thread.
        max_batch: Streams recognised in one call, each with all channels that are due; more where
            the recogniser gains from more.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        *,
        call_soon: Callable[[Callable[[Report], None], Report], object],
        max_batch: int = 1,
    ) -> None:
        self._recognizer = recognizer
        self._call_soon = call_soon
        self._max_batch = max(max_batch, recognizer.info.batch_streams)
        self._wake = threading.Condition()
        self._touched: dict[Job, None] = {}  # guarded by the lock, in order of arrival
        self._is_stopping = False
        self._waiting: deque[Job] = deque()  # worker thread only; each job at most once
        self._thread = threading.Thread(target=self._run, name="audiokv-worker", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End the thread after the step it is in; tell whether it ended in time."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def submit(self, job: Job, command: Command) -> None:
        """Queue audio or a request for a stream; the caller bounds what it queues."""
        with self._wake:
            job.commands.append(command)
            self._touched[job] = None
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  the boundary of the thread
            log_failure(logger, "the worker", error)  # the server sees that the thread is gone

    def _work(self) -> None:
        while (touched := self._take()) is not None:
            for job, commands in touched:
                self._advance(job, commands)
            batch = [
                self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))
            ]
            for job in batch:
                job.is_waiting = False
            self._step([job for job in batch if not job.is_over])

    def _take(self) -> list[tuple[Job, list[Command]]] | None:
        with self._wake:
            while not (self._touched or self._waiting or self._is_stopping):
                self._wake.wait()
            if self._is_stopping:
                return None
            touched = []
            for job in self._touched:
                touched.append((job, job.commands))
                job.commands = []
            self._touched.clear()
            return touched

    @contextmanager
    def _contained(self, job: Job) -> Iterator[None]:
        """The boundary of a session: whatever is raised inside ends that session only."""
        try:
            yield
        except AudioKVError as error:
            self._fail(job, as_refusal(error))
            logger.warning("stream %s refused: %s", job.name, error.code)
        except Exception as error:  # noqa: BLE001  the boundary of a session
            self._fail(job, internal_refusal())
            log_failure(logger, f"stream {job.name}", error)

    def _advance(self, job: Job, commands: Sequence[Command]) -> None:
        if job.is_over:
            return
        with self._contained(job):
            if job.session is None:
                job.session = job.open_session()
            job.session.be_late(job.live_lag_ms())
            for command in commands:
                if command is Request.DROP:
                    self._end(job)
                    return
                if command is Request.FINALIZE:
                    job.finalize_ms.append(job.session.received_ms)
                _obey(job.session, command)
            events = job.session.prepare()
            self._settle(job, job.session, events, n_commands=len(commands))

    def _step(self, batch: Sequence[Job]) -> None:
        if not batch:
            return
        sessions = [job.session for job in batch if job.session is not None]
        streams = [session.due for session in sessions]
        try:
            hypotheses = self._recognizer.decode([stream for due in streams for stream in due])
            parts = _parts(hypotheses, [len(due) for due in streams])
            results = list(zip(batch, sessions, parts, strict=True))
        except Exception as error:  # noqa: BLE001  the boundary of a session
            if len(batch) > 1:
                # Only the stream at fault may end: find it by running each alone.
                for job in batch:
                    self._step([job])
                return
            self._fail(batch[0], internal_refusal())
            log_failure(logger, f"stream {batch[0].name}", error)
            return
        for job, session, part in results:
            with self._contained(job):
                session.be_late(job.live_lag_ms())
                events = session.apply(part)
                events += session.prepare()
                self._settle(job, session, events)
                session.rest()

    def _settle(
        self, job: Job, session: ChannelGroup, events: Sequence[Event], *, n_commands: int = 0
    ) -> None:
        """Queue the next step and report what is worth it."""
        if session.is_step_due and not job.is_waiting:
            job.is_waiting = True
            self._waiting.append(job)
        processed_ms, is_done = session.processed_ms, session.is_done
        cache = session.cache_counters
        has_finalized = job.count_finalized(session) > 0
        if is_done:
            self._end(job)
        has_moved = processed_ms - job.reported_ms >= REPORT_EVERY_MS or has_finalized
        if events or is_done or has_moved or n_commands >= REPORT_EVERY_COMMANDS:
            job.reported_ms = processed_ms
            news = tuple(Said(event, pack(event)) for event in events)
            report = Report(
                news,
                processed_ms,
                is_done=is_done,
                cache=cache,
                recognition=session.recognition,
                n_finalized=job.n_finalized,
            )
            self._post(job, report)

    def _fail(self, job: Job, refusal: RefusalError) -> None:
        self._end(job)
        self._post(job, Report((), job.reported_ms, failure=refusal))

    def _end(self, job: Job) -> None:
        job.is_over = True
        job.session = None

    def _post(self, job: Job, report: Report) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody is left to tell
            self._call_soon(job.deliver, report)


def _parts(results: Sequence[Hypothesis], lengths: Sequence[int]) -> list[Sequence[Hypothesis]]:
    """Cut results into consecutive parts.

    Raises:
        ValueError: There are more or fewer than the parts take.
    """
    if len(results) != sum(lengths):
        raise ValueError(f"{len(results)} results came for {sum(lengths)} streams")
    ends = list(accumulate(lengths))
    return [results[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _obey(session: ChannelGroup, command: Command) -> None:
    match command:
        case bytes():
            session.push(command)
        case StreamOptions():
            session.update(command)
        case Request.FINALIZE:
            session.finalize()
        case _:
            session.stop()
