from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma3nAudioFeatureExtractor

from audiokv.models.gemma3n.mel import MelFrontEnd
from audiokv.models.gemma3n.tower import StreamingTower
from audiokv.streaming.session_options import SessionOptions
from audiokv.streaming.stabilizer import CommitOptions, ShowOptions
from benchmarks.budget_parts import Known
from benchmarks.budget_waits import WORD_MS, AtOnce, SlotGrid, find_waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPTIONS = SessionOptions()


@pytest.fixture(scope="module")
def front_end() -> MelFrontEnd:
    return MelFrontEnd(Gemma3nAudioFeatureExtractor())


def test_a_word_waits_for_the_next_step_and_for_its_second_hypothesis() -> None:
    waits = find_waits(AtOnce(), OPTIONS, is_aligned=True)
    assert waits.audio_ms.max() == 0
    assert sorted(waits.step_ms) == list(range(0, 200, 10))
    assert set(waits.show_ms) == {200.0}
    assert waits.median_ms == 295.0


def test_a_guard_shorter_than_a_step_shows_words_sooner() -> None:
    options = replace(OPTIONS, show=ShowOptions(guard_ms=100))
    waits = find_waits(AtOnce(), options, is_aligned=True)
    ages_ms = waits.step_ms
    assert all(waits.show_ms[ages_ms >= 100] == 0)
    assert all(waits.show_ms[ages_ms < 100] == 200)


def test_steps_are_those_of_the_options() -> None:
    waits = find_waits(AtOnce(), replace(OPTIONS, step_ms=400), is_aligned=True)
    assert waits.step_ms.max() == 390
    assert waits.audio_ms.size == 40


def test_commitment_follows_the_rule_of_the_recogniser() -> None:
    aligned = find_waits(AtOnce(), OPTIONS, is_aligned=True)
    agreed = find_waits(AtOnce(), OPTIONS, is_aligned=False)
    assert agreed.commit_ms.max() <= 0 < aligned.commit_ms.min()
    late = replace(OPTIONS, commit=CommitOptions(guard_ms=1000))
    assert find_waits(AtOnce(), late, is_aligned=True).commit_ms.mean() > 500


def test_the_parts_name_what_they_are_known_from() -> None:
    waits = find_waits(AtOnce(), OPTIONS, is_aligned=True)
    audio, step, rule = waits.parts("all of it")
    assert (audio.known, audio.note) == (Known.SHAPES, "all of it")
    assert (step.typical_ms, step.worst_ms, step.known) == (95.0, 190.0, Known.RULE)
    assert rule.typical_ms == 200.0
    assert str(WORD_MS) in waits.commit_part().note


def audible(tower: StreamingTower, mel: MelFrontEnd, samples: NDArray[np.float32]) -> torch.Tensor:
    """All slots of some audio, those that are not final included."""
    with torch.no_grad():
        whole, state = tower.advance(tower.start(), torch.from_numpy(mel.log_mel(samples))[None])
        return torch.cat((whole, tower.finish(state)), dim=1)


@settings(max_examples=12, deadline=None)
@given(end_frames=st.integers(20, 50))
def test_a_sound_is_seen_from_the_frame_on_that_the_sizes_say(end_frames: int) -> None:
    from tests.models.gemma3n.conftest import tiny_encoder  # noqa: PLC0415  heavy

    tower, front_end = StreamingTower(tiny_encoder()), MelFrontEnd(Gemma3nAudioFeatureExtractor())
    end_ms = 10 * end_frames
    seen_ms = SlotGrid.of(front_end, 16, 6, is_final=False).seen_ms(end_ms)
    quiet = np.zeros(16 * (seen_ms + 10), np.float32)
    loud = quiet.copy()
    loud[16 * end_ms - 8 : 16 * end_ms] = 0.5  # the last half millisecond before the end

    def differs(heard_ms: int) -> Any:
        first, second = (audible(tower, front_end, s[: 16 * heard_ms]) for s in (quiet, loud))
        return not torch.equal(first, second)

    assert differs(seen_ms)
    if seen_ms > end_ms:
        assert not differs(seen_ms - 10)


def test_a_reader_of_final_slots_waits_up_to_their_look_ahead(front_end: MelFrontEnd) -> None:
    final = SlotGrid.of(front_end, 16, 6, is_final=True)
    early = SlotGrid.of(front_end, 16, 6, is_final=False)
    ends_ms = range(1600, 3200, 10)
    waits = [final.seen_ms(end_ms) - end_ms for end_ms in ends_ms]
    assert 0 <= min(waits) <= 20
    assert 150 <= max(waits) <= 170
    assert all(early.seen_ms(end_ms) <= final.seen_ms(end_ms) for end_ms in ends_ms)
    assert final.grid_ms == 160


def test_slots_make_words_wait_longer(front_end: MelFrontEnd) -> None:
    early = find_waits(SlotGrid.of(front_end, 16, 6, is_final=False), OPTIONS, is_aligned=True)
    final = find_waits(SlotGrid.of(front_end, 16, 6, is_final=True), OPTIONS, is_aligned=True)
    assert 0 < early.audio_ms.mean() < final.audio_ms.mean()
    assert early.audio_ms.size == 80  # all the ways slots and steps can meet
