from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measures import changed_commitments, final_words
from benchmarks.virtual_stream import VirtualListener, VirtualRun, agreement_options
from tests.server.doubles import (
    LoudnessDetector,
    ScriptedRecognizer,
    captions_in,
    speech,
    undisturbed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.models.base import Hypothesis, RecognizerStream
    from audiokv.streaming.session_options import SessionOptions

PCM = speech(4, seconds=6.0)
SAMPLES = np.frombuffer(PCM, "<i2").astype(np.float32) / np.float32(32_768)


class SlowRecognizer(ScriptedRecognizer):
    """Computes for a fixed time a step on a clock of its own."""

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s = step_s
        self.computed_s = 0.0

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        self.computed_s += self._step_s
        return super().decode(streams)


def listen(
    step_s: float, options: SessionOptions | None = None, *, is_agreeing: bool = False
) -> VirtualRun:
    recognizer = SlowRecognizer(step_s)
    read: Callable[[], float] = lambda: recognizer.computed_s  # noqa: E731
    listener = VirtualListener(
        recognizer, LoudnessDetector, options, is_agreeing=is_agreeing, compute_s=read
    )
    return listener.listen(SAMPLES)


def test_it_says_what_a_session_says() -> None:
    run = listen(0.05)
    expected = captions_in(undisturbed(PCM))
    assert [a.caption for a in run.arrivals] == expected
    assert changed_commitments(run.arrivals) == 0
    assert run.duration_ms == 6_000


def test_captions_arrive_when_their_step_is_done() -> None:
    run = listen(0.05)
    assert all(round(step.lag_ms, 6) == 50.0 for step in run.steps)
    done_ms = {step.due_ms + 50 for step in run.steps}
    assert all(round(a.at_ms) in done_ms for a in run.arrivals if not a.caption.is_final)
    assert any(not a.caption.is_final for a in run.arrivals)
    assert run.compute_ms == sum(step.compute_ms for step in run.steps)


def test_who_computes_longer_than_he_listens_falls_behind() -> None:
    steps = listen(0.3).steps
    assert steps[-1].lag_ms > 3 * steps[0].lag_ms
    assert all(b.lag_ms > 0 for b in steps)


def test_more_computing_changes_times_only() -> None:
    fast, slow = listen(0.0), listen(0.3)
    assert [a.caption for a in fast.arrivals] == [a.caption for a in slow.arrivals]
    assert fast.arrivals[-1].at_ms < slow.arrivals[-1].at_ms


def test_the_usual_way_steps_once_a_second_and_commits_by_agreement() -> None:
    ours, usual = listen(0.05), listen(0.05, agreement_options(), is_agreeing=True)
    assert len(usual.steps) < len(ours.steps) / 2
    words = [{w.text for w in final_words(run.arrivals)} for run in (ours, usual)]
    assert len(words[1]) > 10
    assert words[1] <= words[0]  # a cell cut by a pause is a word for some steps only
