from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.rhythm import REMEMBERED_STRETCHES, RhythmPredictor


def hear(rhythm: RhythmPredictor, pattern: str) -> RhythmPredictor:
    for slot in pattern:
        rhythm.hear(is_voice=slot == "v")
    return rhythm


def test_before_the_first_word_it_is_a_pause_and_a_guess() -> None:
    rhythm = RhythmPredictor(20, pause_ms=200, first_guess_ms=1000)
    assert rhythm.is_pause
    assert rhythm.expected_slots == 50 + 10


@pytest.mark.parametrize(("pause_ms", "n_slots"), [(40, 2), (100, 5), (90, 5), (0, 1)])
def test_silence_of_its_length_is_a_pause(pause_ms: int, n_slots: int) -> None:
    rhythm = hear(RhythmPredictor(20, pause_ms), "v" + "." * (n_slots - 1))
    assert not rhythm.is_pause
    assert hear(rhythm, ".").is_pause
    assert not hear(rhythm, "v").is_pause


def test_a_stretch_includes_gaps_shorter_than_a_pause_and_not_the_pause() -> None:
    rhythm = hear(RhythmPredictor(20, pause_ms=60), "....vvv..vv.......")
    assert rhythm.expected_slots == 7 + 3
    assert hear(rhythm, "v......").expected_slots == 7 + 3


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 2), (0.75, 3), (1.0, 9), (0.01, 1)])
def test_the_prediction_is_a_quantile(quantile: float, expected: int) -> None:
    rhythm = RhythmPredictor(20, 20, quantile)
    for n_voiced in (3, 9, 1, 2):
        hear(rhythm, "v" * n_voiced + "..")
    assert rhythm.expected_slots == expected + 1


def test_old_stretches_are_forgotten() -> None:
    rhythm = hear(RhythmPredictor(20, 20), "v" * 50 + "." + "vv." * REMEMBERED_STRETCHES)
    assert rhythm.expected_slots == 2 + 1


@given(st.lists(st.booleans(), max_size=200))
def test_it_never_expects_less_than_a_word_and_a_pause(slots: list[bool]) -> None:
    rhythm = hear(RhythmPredictor(20, 60), "".join("v" if slot else "." for slot in slots))
    assert rhythm.expected_slots > 3
    assert rhythm.is_pause == (not any(slots[-3:]))


@pytest.mark.parametrize("quantile", [0.0, 1.1])
def test_a_quantile_out_of_range_is_refused(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        RhythmPredictor(20, quantile=quantile)
