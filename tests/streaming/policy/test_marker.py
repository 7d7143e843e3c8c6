from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.dialect import DialectPrior
from audiokv.streaming.policy.marker import SlotMarker, Talker

if TYPE_CHECKING:
    from audiokv.streaming.policy.marks import SlotMarks


def speech(n_frames: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    envelope = np.repeat(rng.choice([0.01, 0.3], n_frames), 160)
    samples = (envelope * rng.standard_normal(n_frames * 160)).astype(np.float32)
    return samples, rng.random(n_frames) < 0.5


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.sampled_from([20, 40, 80, 160]))
def test_any_chunking_gives_the_same_slots(chunks: list[int], slot_ms: int) -> None:
    samples, is_voice = speech(sum(chunks))
    whole = SlotMarker(slot_ms).push(samples, is_voice)
    marker = SlotMarker(slot_ms)
    cuts = np.cumsum(chunks)[:-1]
    parts: list[SlotMarks] = []
    for part, voice in zip(np.split(samples, cuts * 160), np.split(is_voice, cuts), strict=True):
        parts += marker.push(part, voice)
    assert len(whole) == sum(chunks) * 10 // slot_ms
    assert [(m.start_ms, m.end_ms, m.is_voice, m.is_boundary) for m in parts] == [
        (m.start_ms, m.end_ms, m.is_voice, m.is_boundary) for m in whole
    ]
    assert [m.power for m in parts] == pytest.approx([m.power for m in whole])


def test_slots_follow_one_another_from_the_start() -> None:
    samples, is_voice = speech(9)
    marks = SlotMarker(40, start_ms=1000).push(samples, is_voice)
    assert [(mark.start_ms, mark.end_ms) for mark in marks] == [(1000, 1040), (1040, 1080)]


@pytest.mark.parametrize(
    ("frames", "is_voice"), [([1, 1], True), ([1, 0], True), ([0, 1], True), ([0, 0], False)]
)
def test_voice_goes_by_half_the_frames(frames: list[int], *, is_voice: bool) -> None:
    marks = SlotMarker(20).push(np.zeros(320, np.float32), np.array(frames, np.bool_))
    assert [mark.is_voice for mark in marks] == [is_voice]


def test_a_boundary_in_any_frame_marks_the_slot() -> None:
    rng = np.random.default_rng(0)
    quiet, loud = (
        (level * rng.standard_normal(16 * 160)).astype(np.float32) for level in (0.001, 0.3)
    )
    marks = SlotMarker(160).push(np.concatenate((quiet, loud, loud)), np.ones(48, np.bool_))
    assert [mark.is_boundary for mark in marks] == [False, True, False]


def test_power_is_the_mean_square() -> None:
    samples = np.full(320, 0.5, np.float32)
    assert SlotMarker(20).push(samples, np.ones(2, np.bool_))[0].power == pytest.approx(0.25)


def test_slots_take_the_talker_and_the_prior() -> None:
    samples, is_voice = speech(4)
    prior = DialectPrior("flat", np.eye(20)[:2], np.array([1.5, 1.5]))
    marks = SlotMarker(20, prior).push(samples, is_voice, Talker("ann", "en"))
    assert {(mark.speaker, mark.language, mark.prior) for mark in marks} == {("ann", "en", 1.5)}
    plain = SlotMarker(20).push(samples, is_voice)
    assert {(mark.speaker, mark.language, mark.prior) for mark in plain} == {(None, None, 1.0)}


@pytest.mark.parametrize("slot_ms", [0, 25])
def test_slots_that_are_not_whole_frames_are_refused(slot_ms: int) -> None:
    with pytest.raises(ValueError, match="whole frames"):
        SlotMarker(slot_ms)


def test_marks_that_do_not_match_the_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="1 voice marks for 320 samples"):
        SlotMarker(20).push(np.zeros(320, np.float32), np.ones(1, np.bool_))
