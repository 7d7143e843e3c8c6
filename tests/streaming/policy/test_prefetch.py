from __future__ import annotations

import pytest

from audiokv.streaming.policy.prefetch import NoPrefetch, RhythmPrefetch, StepPrefetch
from audiokv.streaming.policy.rhythm import RhythmPredictor


def rhythm_of(pattern: str) -> RhythmPredictor:
    rhythm = RhythmPredictor(20, pause_ms=40)
    for slot in pattern:
        rhythm.hear(is_voice=slot == "v")
    return rhythm


SPEAKING = rhythm_of("v" * 10 + ".." + "v")
PAUSING = rhythm_of("v" * 10 + "..")


def test_no_prefetch_wants_nothing() -> None:
    assert NoPrefetch().free_slots(PAUSING, 8, 100) == 0


def test_a_step_ahead_wants_a_step() -> None:
    assert StepPrefetch().free_slots(SPEAKING, 8, 100) == 8
    assert StepPrefetch().free_slots(PAUSING, 15, 100) == 15


@pytest.mark.parametrize(("total_slots", "wanted"), [(200, 16), (100, 10), (60, 0)])
def test_rare_steps_get_room_where_there_is_enough(total_slots: int, wanted: int) -> None:
    assert StepPrefetch(rare_slots=16).free_slots(SPEAKING, 10, total_slots) == wanted
    assert StepPrefetch(rare_slots=16).free_slots(SPEAKING, 20, 200) == 20


@pytest.mark.parametrize(("max_share", "wanted"), [(0.15, 0), (0.2, 16), (1.0, 16)])
def test_a_step_that_is_much_of_the_budget_gets_no_room(max_share: float, wanted: int) -> None:
    assert StepPrefetch(max_share).free_slots(SPEAKING, 16, 100) == wanted


def test_the_rhythm_wants_a_stretch_in_a_pause_and_a_step_in_speech() -> None:
    assert RhythmPrefetch(1.0).free_slots(PAUSING, 8, 100) == 20
    assert RhythmPrefetch(1.0).free_slots(SPEAKING, 8, 100) == 8


@pytest.mark.parametrize(("max_share", "wanted"), [(0.05, 8), (0.1, 10), (0.5, 20)])
def test_a_pause_frees_no_more_than_its_share(max_share: float, wanted: int) -> None:
    assert RhythmPrefetch(max_share).free_slots(PAUSING, 8, 100) == wanted


def test_it_never_wants_more_than_the_budget() -> None:
    assert RhythmPrefetch().free_slots(SPEAKING, 8, 3) == 3


@pytest.mark.parametrize("max_share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(max_share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        RhythmPrefetch(max_share)
