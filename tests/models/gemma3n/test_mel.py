from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma3nAudioFeatureExtractor

from audiokv.models.gemma3n.mel import IncrementalMel, MelFrontEnd
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS: list[dict[str, Any]] = [
    {},
    {
        "per_bin_mean": [0.1 * i for i in range(128)],
        "per_bin_stddev": [1.0 + i for i in range(128)],
    },
    {"preemphasis": 0.0, "feature_size": 64, "fft_overdrive": False},
    {"preemphasis_htk_flavor": False, "input_scale_factor": 3.0, "mel_floor": 0.02},
    {"hop_length_ms": 5.0, "frame_length_ms": 25.0, "min_frequency": 50.0, "max_frequency": 4000.0},
]


def sound(n_samples: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    tone = np.sin(np.arange(n_samples) * 0.05)
    loud = 0.3 * tone + 0.05 * generator.standard_normal(n_samples)
    samples: np.ndarray = loud.astype(np.float32)
    return samples


def batch(extractor: Any, samples: np.ndarray) -> np.ndarray:
    """What transformers makes of the whole audio, with nothing padded and nothing cut off."""
    made = extractor(samples, padding=False, truncation=False, pad_to_multiple_of=None)
    features: np.ndarray = made["input_features"][0]
    return features


@pytest.mark.parametrize("settings", SETTINGS)
def test_frames_are_those_of_transformers(settings: dict[str, Any]) -> None:
    extractor = Gemma3nAudioFeatureExtractor(**settings)
    samples = sound(30_001)
    expected = batch(extractor, samples)
    got = MelFrontEnd(extractor).log_mel(samples)
    assert got.shape == expected.shape
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=1e-5)


@given(st.lists(st.integers(0, 2_500), max_size=12), st.sampled_from([0, 1, 4]))
@settings(max_examples=50, deadline=None)
def test_any_chunking_gives_the_same_frames(chunks: list[int], number: int) -> None:
    front_end = MelFrontEnd(Gemma3nAudioFeatureExtractor(**SETTINGS[number]))
    samples = sound(sum(chunks))
    mel = IncrementalMel(front_end)
    cuts = np.cumsum(chunks)
    pushed = [mel.push(part) for part in np.split(samples, cuts)]
    np.testing.assert_allclose(np.concatenate(pushed), front_end.log_mel(samples), atol=1e-6)


def test_a_frame_waits_for_513_samples() -> None:
    mel = IncrementalMel(MelFrontEnd(Gemma3nAudioFeatureExtractor()))
    assert len(mel.push(sound(512))) == 0
    assert len(mel.push(sound(1))) == 1
    assert len(mel.push(sound(159))) == 0
    assert len(mel.push(sound(1))) == 1


def test_long_audio_is_worked_off_in_parts() -> None:
    extractor = Gemma3nAudioFeatureExtractor()
    samples = sound(16_000 * 11)
    got = MelFrontEnd(extractor).log_mel(samples)
    assert len(got) > 1024
    np.testing.assert_allclose(got, batch(extractor, samples), atol=1e-5)


def test_reset_forgets_what_was_held() -> None:
    front_end = MelFrontEnd(Gemma3nAudioFeatureExtractor())
    mel = IncrementalMel(front_end)
    mel.push(sound(1000, seed=1))
    mel.reset()
    np.testing.assert_array_equal(mel.push(sound(2000)), front_end.log_mel(sound(2000)))


@pytest.mark.parametrize("name", ["preprocessor_config.json", "processor_config.json"])
def test_the_front_end_is_read_from_the_models_folder(tmp_path: Path, name: str) -> None:
    assert MelFrontEnd.from_folder(tmp_path).n_mels == 128
    settings = {"feature_size": 40}
    nested = {"feature_extractor": settings} if name.startswith("processor") else settings
    (tmp_path / name).write_text(json.dumps(nested))
    assert MelFrontEnd.from_folder(tmp_path).n_mels == 40


@pytest.mark.parametrize("settings", [{"sampling_rate": 8000}, {"dither": 0.1}])
def test_a_front_end_that_cannot_be_streamed_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=str(next(iter(settings.values())))):
        MelFrontEnd(Gemma3nAudioFeatureExtractor(**settings))
