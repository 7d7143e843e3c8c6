"""A session in virtual time: audio comes in real time, computing takes as long as it takes.

No server and no waiting: ten minutes of silence are done in seconds. The clock is that of the
audio; a step that computes for 80 ms keeps the session busy for 80 ms of it. Computing time is the
thread's own, so that waiting for a core does not count (neighbours that use the same caches still
slow it). It therefore holds for one thread; `one_thread` sees to that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from audiokv.models.base import StreamOptions
from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES, AudioFormat
from audiokv.streaming.captions import Caption
from audiokv.streaming.session import Session
from audiokv.streaming.session_options import SessionOptions
from audiokv.streaming.stabilizer import ShowOptions
from benchmarks.measures import Arrival
from benchmarks.recordings import to_pcm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    from numpy.typing import NDArray

    from audiokv.models.base import Recognizer
    from audiokv.streaming.voice_activity import VoiceDetector

    FloatArray = NDArray[np.float32]

_FRAME_BYTES = 2 * FRAME_SAMPLES
AGREEMENT_STEP_MS = 1000


def one_thread() -> None:
    """Let the models compute in the calling thread only."""
    import torch  # noqa: PLC0415  seconds to import

    torch.set_num_threads(1)


@dataclass(frozen=True, slots=True)
class Step:
    """One recognition step.

    Attributes:
        due_ms: Position of the stream it was due at.
        compute_ms: What it cost.
        lag_ms: From when it was due until it was done.
    """

    due_ms: int
    compute_ms: float
    lag_ms: float


@dataclass(slots=True)
class VirtualRun:
    """What a session said and what it cost.

    Attributes:
        arrivals: Captions, on the stream's clock.
        steps: Every recognition step.
        listen_ms: Computing outside recognition steps: framing and voice detection.
        duration_ms: Length of the audio.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    listen_ms: float = 0.0
    duration_ms: float = 0.0

    @property
    def compute_ms(self) -> float:
        """All computing."""
        return self.listen_ms + sum(step.compute_ms for step in self.steps)

    def take_caption(self, arrival: Arrival) -> None:
        """Note a caption."""
        self.arrivals.append(arrival)

    def take_step(self, step: Step) -> None:
        """Note a step whose captions are out."""
        self.steps.append(step)


@dataclass(frozen=True, slots=True)
class Piece:
    """Audio as it comes.

    Attributes:
        at_ms: When.
        audio: pcm_s16le, 16 kHz mono; any number of bytes.
        finalizes: Whether the open segment is to end behind it.
    """

    at_ms: float
    audio: bytes
    finalizes: bool = False


class VirtualListener:
    """Runs streams of one recogniser in virtual time.

    Args:
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        options: How streams are cut; by default as the server does.
        is_agreeing: Commit by agreement of two hypotheses even where the recogniser aligns.
        compute_s: Reads the computing time so far.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        open_detector: Callable[[], VoiceDetector],
        options: SessionOptions | None = None,
        *,
        is_agreeing: bool = False,
        compute_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._recognizer = recognizer
        self._info = replace(recognizer.info, aligns=False) if is_agreeing else recognizer.info
        self._open_detector = open_detector
        self._options = options or SessionOptions()
        self._compute_s = compute_s

    def listen(self, samples: FloatArray, language: str | None = None) -> VirtualRun:
        """Return what a stream of this audio says.

        Args:
            samples: Shape (n,), 16 kHz mono.
            language: ISO 639-1 code, or None to have it detected.
        """
        audio = to_pcm(samples)
        pieces = (
            Piece(FRAME_MS * (n + 1.0), audio[first : first + _FRAME_BYTES])
            for n, first in enumerate(range(0, len(audio), _FRAME_BYTES))
        )
        return self.listen_to(pieces, StreamOptions(language=language))

    def listen_to(
        self, pieces: Iterable[Piece], wishes: StreamOptions, run: VirtualRun | None = None
    ) -> VirtualRun:
        """Return what a stream says of audio that comes piece by piece.

        Args:
            pieces: In order of time.
            wishes: What the source wishes.
            run: Where it is noted; by default in a fresh one, which keeps everything.
        """
        run = run or VirtualRun()
        session = Session(
            fmt=AudioFormat(),
            stream=self._recognizer.open_stream(wishes),
            info=self._info,
            detector=self._open_detector(),
            options=self._options,
        )
        busy_ms = at_ms = 0.0
        ahead: Piece | None = None
        for piece in chain(pieces, (None,)):  # one behind: the last piece ends the stream
            if ahead is not None:
                session.push(ahead.audio)
                if ahead.finalizes:
                    session.finalize()
                at_ms = ahead.at_ms
                if piece is None:
                    session.stop()
                busy_ms = self._catch_up(session, run, max(busy_ms, at_ms))
            ahead = piece
        run.duration_ms = float(session.received_ms)
        return run

    def _catch_up(self, session: Session, run: VirtualRun, at_ms: float) -> float:
        """Do all that is due; return when it is done."""
        while True:
            began_s = self._compute_s()
            events = session.prepare()
            due_ms = session.processed_ms if session.is_step_due else None
            if due_ms is not None:
                events += session.apply(self._recognizer.decode([session.stream])[0])
            cost_ms = (self._compute_s() - began_s) * 1e3
            at_ms += cost_ms
            for event in events:
                if isinstance(event, Caption):
                    run.take_caption(Arrival(at_ms, event))
            if due_ms is None:
                run.listen_ms += cost_ms
                return at_ms
            run.take_step(Step(due_ms, cost_ms, at_ms - due_ms))
            began_s = self._compute_s()
            session.rest()  # after the captions, yet before the next step
            at_ms += (self._compute_s() - began_s) * 1e3


def agreement_options() -> SessionOptions:
    """Return the timing of the usual way to stream Whisper.

    Every second the whole window is decoded again, what two hypotheses agree on is committed, and
    the rest is shown as it comes.
    """
    return SessionOptions(step_ms=AGREEMENT_STEP_MS, show=ShowOptions(guard_ms=0))
