from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor

from audiokv.models.qwen_omni.qwen_omni_speech import QwenOmniSpeech
from audiokv.models.qwen_omni.window_source import WindowSource, slot_marks
from audiokv.models.whisper.features import mel_filters
from audiokv.streaming.policy.marker import UNKNOWN_TALKER, Talker
from audiokv.streaming.policy.marks import SlotMarks
from tests.models.gemma3n.conftest import sound
from tests.models.qwen_omni.conftest import N_MELS, WINDOW_FRAMES, tiny_thinker

WINDOW_SAMPLES = 160 * WINDOW_FRAMES


@pytest.fixture(scope="module")
def speech() -> QwenOmniSpeech:
    return QwenOmniSpeech(tiny_thinker())


def opened(speech: QwenOmniSpeech, at_ms: int = 0) -> WindowSource:
    return WindowSource(speech, mel_filters(N_MELS), at_ms)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 70_000), max_size=6), st.integers(1, 70_000))
@torch.no_grad()
def test_slots_do_not_depend_on_how_the_audio_came(
    speech: QwenOmniSpeech, cuts: list[int], n_samples: int
) -> None:
    clip = sound(n_samples, 1)
    at_once, pieces = opened(speech), opened(speech)
    expected = at_once.push(clip, UNKNOWN_TALKER)
    found = []
    for part in np.split(clip, sorted(cut for cut in cuts if cut < n_samples)):
        found += pieces.push(part, UNKNOWN_TALKER)
    assert [marks for _, marks in found] == [marks for _, marks in expected]
    for (a, _), (b, _) in zip(found, expected, strict=True):
        torch.testing.assert_close(a.embeds, b.embeds, atol=1e-5, rtol=0)
    for a, b in zip(pieces.unfinished(), at_once.unfinished(), strict=True):
        torch.testing.assert_close(a.embeds, b.embeds, atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_window_is_final_when_its_last_frame_is(speech: QwenOmniSpeech) -> None:
    source, clip = opened(speech), sound(WINDOW_SAMPLES + 100, 2)
    assert source.push(clip[: WINDOW_SAMPLES + 39], UNKNOWN_TALKER) == []
    (open_window,) = source.unfinished()
    assert len(open_window) == 26
    whole = source.push(clip[WINDOW_SAMPLES + 39 : WINDOW_SAMPLES + 40], UNKNOWN_TALKER)
    assert len(whole) == 26
    assert source.unfinished() == []  # not one frame of the next window is there


@torch.no_grad()
def test_marks_follow_the_clock_of_the_stream(speech: QwenOmniSpeech) -> None:
    source = opened(speech, at_ms=5000)
    whole = source.push(sound(WINDOW_SAMPLES + 40, 3), Talker("caller", "en"))
    marks = [mark for _, mark in whole]
    assert (marks[0].start_ms, marks[0].end_ms) == (5000, 5080)
    assert (marks[12].start_ms, marks[12].end_ms) == (5960, 6000)
    assert (marks[13].start_ms, marks[25].end_ms) == (6000, 7000)
    assert {(mark.speaker, mark.language) for mark in marks} == {("caller", "en")}


def test_a_slot_is_what_its_frames_are() -> None:
    frames = [
        SlotMarks(
            10 * i,
            10 * (i + 1),
            is_voice=i < 100,
            is_boundary=i == 9,
            prior=1.0 + i,
            power=float(i),
        )
        for i in range(200)
    ]
    slots = slot_marks(frames, 100)
    assert len(slots) == 26
    assert [slot.is_voice for slot in slots] == [True] * 13 + [False] * 13
    assert [i for i, slot in enumerate(slots) if slot.is_boundary] == [1]
    assert slots[0].prior == np.mean(np.arange(8)) + 1
    assert slots[12].power == np.mean([96, 97, 98, 99])
    assert slots[25].end_ms == 2000


def by_class(clip: np.ndarray) -> np.ndarray:
    build: Any = WhisperFeatureExtractor  # transformers is typed in part
    extractor = build(feature_size=N_MELS)
    made = extractor(
        clip, sampling_rate=16_000, padding="longest", truncation=False, return_tensors="np"
    )
    found: np.ndarray = made["input_features"][0]
    return found


@pytest.fixture
def heard(speech: QwenOmniSpeech, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What the encoder is given, window by window."""
    given: list[np.ndarray] = []
    encode = speech.encoder.encode

    def spy(mel: torch.Tensor, *, has_past: bool) -> torch.Tensor:
        given.append(mel.numpy())
        return encode(mel, has_past=has_past)

    monkeypatch.setattr(speech.encoder, "encode", spy)
    return given


@torch.no_grad()
def by_window(speech: QwenOmniSpeech, heard: list[np.ndarray], clip: np.ndarray) -> np.ndarray:
    """The front end of a live stream; the clip is whole windows."""
    opened(speech).push(np.concatenate((clip, np.zeros(40, np.float32))), UNKNOWN_TALKER)
    return np.concatenate(heard, axis=1)


def test_the_front_end_is_the_class_once_the_loudest_was_heard(
    speech: QwenOmniSpeech, heard: list[np.ndarray]
) -> None:
    clip = sound(2 * WINDOW_SAMPLES, 4)
    clip[WINDOW_SAMPLES:] *= 1e-5  # its floor is that of the loud window before it
    expected, found = by_class(clip), by_window(speech, heard, clip)
    inside = slice(2, -2)  # the class mirrors the clip's first and last 200 samples
    np.testing.assert_allclose(found[:, inside], expected[:, inside], atol=1e-3)


def test_the_floor_before_that_is_lower_than_the_class_has_it(
    speech: QwenOmniSpeech, heard: list[np.ndarray]
) -> None:
    """What cannot be exact: the class knows how loud the clip will be."""
    clip = sound(2 * WINDOW_SAMPLES, 5)
    clip[:WINDOW_SAMPLES] *= 1e-5
    expected, found = by_class(clip), by_window(speech, heard, clip)
    quiet = found[:, 2:WINDOW_FRAMES]
    assert (expected[:, 2:WINDOW_FRAMES] - quiet).min() > -1e-3
    assert (expected[:, 2:WINDOW_FRAMES] - quiet).max() > 0.1
    loud = slice(WINDOW_FRAMES + 2, -2)
    np.testing.assert_allclose(found[:, loud], expected[:, loud], atol=1e-3)
