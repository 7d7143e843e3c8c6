from __future__ import annotations

import numpy as np
import pytest
from transformers import Gemma3nAudioFeatureExtractor

from tools.digits_mel import LogMel, normalised_extractor, samples_for


@pytest.fixture(scope="module")
def waveforms() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (0.1 * rng.standard_normal((2, samples_for(5)))).astype(np.float32)


def test_frames_are_those_of_the_feature_extractor(waveforms: np.ndarray) -> None:
    extractor = Gemma3nAudioFeatureExtractor(
        per_bin_mean=np.linspace(-5, -3, 128).tolist(),
        per_bin_stddev=np.linspace(1, 3, 128).tolist(),
    )
    ours = LogMel(extractor)(waveforms).numpy()
    for at, waveform in enumerate(waveforms):
        theirs = extractor(waveform, pad_to_multiple_of=None)["input_features"][0]
        np.testing.assert_allclose(ours[at], theirs, atol=2e-2)
        assert np.abs(ours[at] - theirs).mean() < 1e-4


def test_whole_slots_are_16_frames_each(waveforms: np.ndarray) -> None:
    assert LogMel(Gemma3nAudioFeatureExtractor())(waveforms).shape == (2, 80, 128)


def test_the_normalised_extractor_gives_zero_mean_and_at_most_unit_deviation(
    waveforms: np.ndarray,
) -> None:
    mel = LogMel(normalised_extractor(waveforms))(waveforms).flatten(0, 1)
    assert mel.mean(0).abs().max() < 1e-3
    assert mel.std(0).max() < 1.001


def test_bins_that_hardly_move_are_not_blown_up() -> None:
    silence = np.zeros((1, samples_for(2)), np.float32)
    assert normalised_extractor(silence).per_bin_stddev.min() == 1.0
