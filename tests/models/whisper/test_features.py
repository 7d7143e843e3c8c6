from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor

from audiokv.models.whisper.features import HOP_SAMPLES, IncrementalLogMel, mel_filters

FILTERS = mel_filters(80)
TOLERANCE = 2e-5  # of features that span about 2; float32 sums in another order


def noise(n_samples: int, seed: int = 0) -> torch.Tensor:
    """Noise under a moving envelope, so that columns differ and some are near the floor."""
    generator = torch.Generator().manual_seed(seed)
    envelope = (torch.arange(n_samples) / 1500.0).sin().abs() ** 4
    return torch.randn(n_samples, generator=generator) * envelope * 0.3


def fed(audio: torch.Tensor, *cuts: int) -> IncrementalLogMel:
    mel = IncrementalLogMel(FILTERS)
    for piece in audio.tensor_split(sorted(cuts)):
        mel.append(piece)
    return mel


def extracted(audio: torch.Tensor, n_mels: int = 80) -> torch.Tensor:
    extractor = WhisperFeatureExtractor(feature_size=n_mels)  # type: ignore[no-untyped-call]
    found = extractor(audio.numpy(), sampling_rate=16_000, return_tensors="np").input_features
    return torch.from_numpy(found[0])


@pytest.mark.parametrize("n_samples", [0, 1, 199, 200, 201, 8_000, 16_123, 47_920])
def test_features_are_those_of_transformers(n_samples: int) -> None:
    # The extractor mirrors what lies before the first sample, a stream's window has silence there:
    # alike where the audio begins with 200 silent samples.
    audio = torch.cat([torch.zeros(240), noise(n_samples)])
    ours = fed(audio).features(3000)
    torch.testing.assert_close(ours, extracted(audio), rtol=0, atol=TOLERANCE)


def test_only_the_mirrored_columns_differ_when_audio_begins_at_once() -> None:
    audio = noise(20_000) + 0.1
    ours, theirs = fed(audio).features(3000), extracted(audio)
    torch.testing.assert_close(ours[:, 2:], theirs[:, 2:], rtol=0, atol=TOLERANCE)
    assert (ours[:, :2] - theirs[:, :2]).abs().max() > TOLERANCE


def test_every_number_of_mel_bands_works() -> None:
    audio = torch.cat([torch.zeros(240), noise(9_000)])
    mel = IncrementalLogMel(mel_filters(128))
    mel.append(audio)
    torch.testing.assert_close(
        mel.features(3000), extracted(audio, n_mels=128), rtol=0, atol=TOLERANCE
    )


@settings(deadline=None, max_examples=60)
@given(
    n_samples=st.integers(0, 40_000),
    cuts=st.lists(st.integers(0, 40_000), max_size=12),
    n_columns=st.integers(1, 300),
)
def test_any_chunking_gives_the_same_features(
    n_samples: int, cuts: list[int], n_columns: int
) -> None:
    audio = noise(n_samples)
    cuts = [min(cut, n_samples) for cut in cuts]
    at_once, in_pieces = fed(audio).features(n_columns), fed(audio, *cuts).features(n_columns)
    assert at_once.shape == (80, n_columns)
    torch.testing.assert_close(in_pieces, at_once, rtol=0, atol=TOLERANCE)


def test_features_in_between_do_not_disturb_what_follows() -> None:
    audio = noise(30_000)
    mel = IncrementalLogMel(FILTERS)
    for piece in audio.tensor_split(27):
        mel.append(piece)
        mel.features(250)
    torch.testing.assert_close(mel.features(250), fed(audio).features(250), rtol=0, atol=TOLERANCE)


@settings(deadline=None, max_examples=40)
@given(
    n_dropped=st.integers(0, 90),
    n_before=st.integers(90 * HOP_SAMPLES, 25_000),
    n_after=st.integers(0, 9_000),
)
def test_after_a_drop_the_rest_is_what_it_was(n_dropped: int, n_before: int, n_after: int) -> None:
    audio = noise(n_before + n_after)
    mel = fed(audio[:n_before])
    mel.drop(n_dropped)
    mel.append(audio[n_before:])
    assert mel.n_samples == n_before + n_after - n_dropped * HOP_SAMPLES
    whole = fed(audio).features(300)[:, n_dropped:]
    # The loudest bin sets the floor of the others: lift both to the higher floor.
    ours = mel.features(300 - n_dropped)
    floor = max(float(whole.min()), float(ours.min()))
    torch.testing.assert_close(
        ours.clamp(min=floor), whole.clamp(min=floor), rtol=0, atol=TOLERANCE
    )


def test_a_drop_frees_the_audio() -> None:
    mel = fed(noise(160_000))
    held = mel._audio.numel()
    mel.drop(900)
    assert mel._audio.numel() < held / 2
    assert mel._columns.untyped_storage().nbytes() <= 101 * 80 * 4


def test_reset_forgets_everything() -> None:
    mel = fed(noise(20_000))
    mel.reset()
    mel.append(noise(5_000, seed=1))
    assert mel.n_samples == 5_000
    assert torch.equal(mel.features(60), fed(noise(5_000, seed=1)).features(60))


def test_silence_is_flat() -> None:
    features = fed(torch.zeros(1_000)).features(100)
    assert torch.equal(features, torch.full((80, 100), (-10.0 + 4.0) / 4.0))


def test_each_column_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    n_computed = []
    original = IncrementalLogMel._log_mel

    def counted(self: IncrementalLogMel, audio: torch.Tensor) -> torch.Tensor:
        columns = original(self, audio)
        n_computed.append(columns.shape[1])
        return columns

    monkeypatch.setattr(IncrementalLogMel, "_log_mel", counted)
    mel = IncrementalLogMel(FILTERS)
    for piece in noise(160_000).tensor_split(50):
        mel.append(piece)
    assert sum(n_computed) == (160_000 - 200) // HOP_SAMPLES + 1
