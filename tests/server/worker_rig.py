"""A worker in its thread, and streams in it, for the tests of the worker."""

from __future__ import annotations

import queue
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from audiokv.models.base import StreamOptions
from audiokv.server.sessions import session_opener
from audiokv.server.worker import Job, Report, Request, Worker
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.session_options import SessionOptions
from tests.server.doubles import NEVER_MERGE_MS, LoudnessDetector, ScriptedRecognizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 20


class Stream:
    """One stream in a worker, and the reports it makes."""

    def __init__(
        self,
        rig: Rig,
        options: StreamOptions | None = None,
        fmt: AudioFormat | None = None,
        labels: tuple[str, ...] = (),
    ) -> None:
        self._rig = rig
        self._reports: queue.Queue[Report] = queue.Queue()
        self.reports: list[Report] = []
        self.job = Job(
            "s-test",
            partial(rig.open_session, fmt or AudioFormat(), options or StreamOptions(), labels),
            self._take,
            lambda: 0,
        )
        self.n_batches = 0

    def _take(self, report: Report) -> None:
        self.n_batches = len(self._rig.recognizer.batches)  # in the worker thread: no race
        self._reports.put(report)

    def submit(self, *commands: bytes | StreamOptions | Request) -> None:
        for command in commands:
            self._rig.worker.submit(self.job, command)

    def next(self) -> Report:
        self.reports.append(self._reports.get(timeout=PATIENCE_S))
        return self.reports[-1]

    def wait(self) -> Report:
        """Return the report that ends the stream."""
        while True:
            report = self.next()
            if report.is_done or report.failure is not None:
                return report

    @property
    def events(self) -> list[object]:
        return [said.event for report in self.reports for said in report.news]


class Rig:
    """A running worker with a scripted recogniser."""

    def __init__(self, *, max_batch: int = 1) -> None:
        self.recognizer = ScriptedRecognizer()
        self.open_session = session_opener(
            self.recognizer, LoudnessDetector, SessionOptions(max_lag_ms=NEVER_MERGE_MS)
        )
        self.worker = Worker(
            self.recognizer, call_soon=lambda deliver, report: deliver(report), max_batch=max_batch
        )
        self.worker.start()


@contextmanager
def open_rigs() -> Iterator[Callable[..., Rig]]:
    """Give a function that starts workers, and see that they end."""
    rigs: list[Rig] = []

    def make(*, max_batch: int = 1) -> Rig:
        rigs.append(Rig(max_batch=max_batch))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.recognizer.gate.set()
        assert rig.worker.stop(PATIENCE_S)
        assert not rig.worker.is_alive
