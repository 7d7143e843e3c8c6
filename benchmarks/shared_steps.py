"""What streams of a Gemma-3n gain when they are due together: computing time of a step of each.

Live streams of spoken digits run in step, once each by itself and once together, with the same
audio. What they say must be the same. Writes ``shared_steps.json`` into the results.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import StreamOptions
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption
from audiokv.streaming.session import Session
from benchmarks.columns import tell
from benchmarks.digit_streams import (
    DEFAULT_DIGITS,
    DIGITS_MODEL,
    bank_of_test_takes,
    digit_stream,
)
from benchmarks.recordings import to_pcm
from benchmarks.results_file import REPOSITORY, RESULTS, provenance, write_results
from benchmarks.virtual_stream import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.models.base import Recognizer
    from audiokv.streaming.captions import Event
    from audiokv.streaming.voice_activity import VoiceDetector

_PUSH_MS = 200  # a step's audio, so that all who speak are due together, as under load
_PUSH_BYTES = 2 * 16 * _PUSH_MS


@dataclass(frozen=True, slots=True)
class Run:
    """What some streams said and cost.

    Attributes:
        texts: Text of every caption of each stream, in order.
        steps_ms: Computing time of each step of one stream: its share of the step they were in.
        n_due: Streams in each step.
    """

    texts: list[list[str]]
    steps_ms: list[float]
    n_due: list[int]

    def take(self, number: int, events: Sequence[Event]) -> None:
        """Keep what a stream said."""
        self.texts[number] += [event.text for event in events if isinstance(event, Caption)]


def run_streams(
    recognizer: Recognizer,
    open_detector: Callable[[], VoiceDetector],
    audios: Sequence[bytes],
    *,
    most_together: int,
    compute_s: Callable[[], float] = time.thread_time,
) -> Run:
    """Run streams in step: each hears 200 ms, then all that are due are recognised.

    Args:
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        audios: 16 kHz mono, 16-bit, one a stream.
        most_together: Streams that are recognised in one call.
        compute_s: Reads the computing time so far.
    """
    sessions = [
        Session(
            fmt=AudioFormat(),
            stream=recognizer.open_stream(StreamOptions("en")),
            info=recognizer.info,
            detector=open_detector(),
        )
        for _ in audios
    ]
    run = Run([[] for _ in audios], [], [])
    for first in range(0, max(map(len, audios)), _PUSH_BYTES):
        for session, audio in zip(sessions, audios, strict=True):
            if first < len(audio):
                session.push(audio[first : first + _PUSH_BYTES])
            if first < len(audio) <= first + _PUSH_BYTES:
                session.stop()
        while due := _prepared(sessions, run):
            for at in range(0, len(due), most_together):
                began_s = compute_s()
                chosen = due[at : at + most_together]
                found = recognizer.decode([sessions[n].stream for n in chosen])
                took_ms = (compute_s() - began_s) * 1e3
                run.steps_ms.extend([took_ms / len(chosen)] * len(chosen))
                run.n_due.append(len(chosen))
                for number, hypothesis in zip(chosen, found, strict=True):
                    run.take(number, sessions[number].apply(hypothesis))
                    sessions[number].rest()
    return run


def _prepared(sessions: Sequence[Session], run: Run) -> list[int]:
    """Let sessions listen to what they were given; return which of them are due."""
    for number, session in enumerate(sessions):
        run.take(number, session.prepare())
    return [number for number, session in enumerate(sessions) if session.is_step_due]


def compared(alone: Run, together: Run) -> dict[str, object]:
    """Return what is written about streams that ran alone and together."""
    n_same = sum(a == b for a, b in zip(alone.texts, together.texts, strict=True))
    alone_ms, together_ms = np.mean(alone.steps_ms), np.mean(together.steps_ms)
    return {
        "n_streams": len(alone.texts),
        "n_streams_with_the_same_captions": n_same,
        "n_steps": len(alone.steps_ms),
        "mean_streams_in_a_step": round(float(np.mean(together.n_due)), 2),
        "step_ms_alone": round(float(alone_ms), 2),
        "step_ms_together": round(float(together_ms), 2),
        "time_of_alone": round(float(together_ms / alone_ms), 3),
        "step_ms_by_streams_due": _by_streams_due(together),
    }


def _by_streams_due(run: Run) -> dict[int, float]:
    """Return the mean share of a stream in steps of each number of streams."""
    n_due = np.repeat(run.n_due, run.n_due)
    steps_ms = np.array(run.steps_ms)
    return {int(n): round(float(steps_ms[n_due == n].mean()), 2) for n in np.unique(n_due)}


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(REPOSITORY / DIGITS_MODEL))
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each stream, at least")
    parser.add_argument("--budget-slots", type=int, default=256)
    parser.add_argument("--digits", type=Path, default=DEFAULT_DIGITS, metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status is 1 where batching changed a caption."""
    wanted = parse_arguments(arguments)
    one_thread()
    origin = provenance()
    bank = bank_of_test_takes(wanted.digits)
    recognizer = load_recognizer(wanted.model, CacheOptions(wanted.budget_slots, "audiokv"))
    open_detector = SileroModel.load().open
    rows = []
    for n_streams in wanted.streams:
        streams = [digit_stream(bank, wanted.seconds * 1e3, seed) for seed in range(n_streams)]
        audios = [to_pcm(stream.samples) for stream in streams]
        runs = [
            run_streams(recognizer, open_detector, audios, most_together=most)
            for most in (1, n_streams)
        ]
        rows.append(compared(*runs))
        tell(str(rows[-1]))
    settings = {"model": Path(wanted.model).name, "budget_slots": wanted.budget_slots}
    path = write_results("shared_steps", {"settings": settings, "rows": rows}, origin, wanted.out)
    tell(str(path))
    return int(any(row["n_streams"] != row["n_streams_with_the_same_captions"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
