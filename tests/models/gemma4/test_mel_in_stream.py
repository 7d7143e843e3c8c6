from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma4AudioFeatureExtractor

from audiokv.models.gemma3n.mel import IncrementalMel
from audiokv.models.gemma4.mel_in_stream import Gemma4FrontEnd
from audiokv.streaming.errors import ConfigError
from tests.models.gemma3n.conftest import sound


def by_class(samples: np.ndarray) -> np.ndarray:
    made = Gemma4AudioFeatureExtractor()(
        [samples], padding="longest", truncation=False, pad_to_multiple_of=None
    )
    found: np.ndarray = made["input_features"][0]
    return found


@settings(max_examples=20, deadline=None)
@given(st.integers(400, 20_000), st.lists(st.integers(1, 20_000), max_size=8))
def test_frames_are_those_of_the_class_for_any_chunking(n_samples: int, cuts: list[int]) -> None:
    samples = sound(n_samples, n_samples)
    mel = IncrementalMel(Gemma4FrontEnd(Gemma4AudioFeatureExtractor()))
    parts = np.split(samples, sorted(cut for cut in cuts if cut < n_samples))
    found = np.concatenate([mel.push(part) for part in parts])
    np.testing.assert_allclose(found, by_class(samples), atol=1e-5)
    mel.reset()
    np.testing.assert_array_equal(mel.push(samples), found)


def test_frame_f_is_centred_on_its_sample() -> None:
    front_end = Gemma4FrontEnd(Gemma4AudioFeatureExtractor())
    click = np.zeros(8000, np.float32)
    click[160 * 20] = 1.0
    mel = IncrementalMel(front_end).push(click)
    assert int(mel.sum(axis=1).argmax()) == 20


def test_dither_cannot_be_streamed() -> None:
    with pytest.raises(ConfigError, match="dither"):
        Gemma4FrontEnd(Gemma4AudioFeatureExtractor(dither=1e-4))
