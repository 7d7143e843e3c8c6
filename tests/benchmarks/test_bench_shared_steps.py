from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.shared_steps import Run, compared, parse_arguments, run_streams
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer, speech

if TYPE_CHECKING:
    from collections.abc import Callable


def ticking() -> Callable[[], float]:
    """A clock by which every reading takes 10 ms."""
    readings = iter(range(1_000_000))
    return lambda: next(readings) / 100


def test_streams_that_are_due_are_recognised_together_and_say_the_same() -> None:
    audios = [speech(seed, seconds=2 + seed / 2) for seed in range(3)]
    recognizer = ScriptedRecognizer()
    alone = run_streams(recognizer, LoudnessDetector, audios, most_together=1, compute_s=ticking())
    assert set(recognizer.batches) == {1}
    recognizer.batches.clear()
    together = run_streams(
        recognizer, LoudnessDetector, audios, most_together=3, compute_s=ticking()
    )
    assert max(recognizer.batches) == 3
    assert together.n_due == recognizer.batches
    assert together.texts == alone.texts
    assert all(texts for texts in alone.texts)
    assert len(together.steps_ms) == len(alone.steps_ms)
    assert np.allclose(alone.steps_ms, 10.0)
    assert np.isclose(sum(together.steps_ms), 10.0 * len(together.n_due))


def test_what_batching_changes_is_told() -> None:
    alone = Run([["a"], ["b"]], [4.0, 4.0], [1, 1])
    together = Run([["a"], ["c"]], [3.0, 3.0], [2])
    assert compared(alone, together) == {
        "n_streams": 2,
        "n_streams_with_the_same_captions": 1,
        "n_steps": 2,
        "mean_streams_in_a_step": 2.0,
        "step_ms_alone": 4.0,
        "step_ms_together": 3.0,
        "time_of_alone": 0.75,
        "step_ms_by_streams_due": {2: 3.0},
    }


def test_the_command_line() -> None:
    wanted = parse_arguments(["--streams", "1", "3", "--seconds", "9", "--budget-slots", "64"])
    assert (wanted.streams, wanted.seconds, wanted.budget_slots) == ([1, 3], 9.0, 64)
