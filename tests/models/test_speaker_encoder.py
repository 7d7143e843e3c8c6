from __future__ import annotations

import sys
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
import torch

from audiokv.models.speaker_encoder import EMBEDDING_SIZE, PACKAGE, SpeakerEncoder
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 256


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random weights of the network's shapes."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.1

    tensors = {"linear.weight": random(SIZE, SIZE), "linear.bias": random(SIZE)}
    for layer in range(3):
        n_inputs = SIZE if layer else 40
        tensors[f"lstm.weight_ih_l{layer}"] = random(4 * SIZE, n_inputs)
        tensors[f"lstm.weight_hh_l{layer}"] = random(4 * SIZE, SIZE)
        tensors[f"lstm.bias_ih_l{layer}"] = random(4 * SIZE)
        tensors[f"lstm.bias_hh_l{layer}"] = random(4 * SIZE)
    return tensors


@pytest.fixture(scope="module")
def random_encoder() -> SpeakerEncoder:
    return SpeakerEncoder(weights())


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    return SpeakerEncoder.load()


def noise(seed: int, n_samples: int = 25_600) -> np.ndarray:
    rng = np.random.default_rng(seed)
    samples: np.ndarray = (rng.standard_normal(n_samples) * 0.1).astype(np.float32)
    return samples


@pytest.mark.parametrize("n_samples", [160, 8_000, 25_600])
def test_an_embedding_is_a_point_of_unit_length(
    random_encoder: SpeakerEncoder, n_samples: int
) -> None:
    embedding = random_encoder.embed(noise(1, n_samples))
    assert embedding.shape == (EMBEDDING_SIZE,)
    assert embedding.dtype == np.float32
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-5)
    assert (embedding >= 0).all()
    assert np.array_equal(embedding, random_encoder.embed(noise(1, n_samples)))
    assert not np.allclose(embedding, random_encoder.embed(noise(2, n_samples)), atol=1e-4)


def test_a_quiet_voice_is_raised_and_a_loud_one_left_as_it_is(
    random_encoder: SpeakerEncoder,
) -> None:
    quiet, quieter = noise(1) * np.float32(0.1), noise(1) * np.float32(0.02)
    assert np.allclose(
        random_encoder.embed(quiet), random_encoder.embed(quieter), rtol=0, atol=1e-5
    )
    loud = random_encoder.embed(noise(1))
    assert not np.allclose(loud, random_encoder.embed(quiet), rtol=0, atol=1e-4)


def test_silence_gives_no_nan(random_encoder: SpeakerEncoder) -> None:
    assert np.isfinite(random_encoder.embed(np.zeros(8_000, np.float32))).all()


def test_the_network_is_computed_as_published() -> None:
    # The last hidden state of the last layer, through a layer and a ramp, to the unit sphere.
    tensors = weights(3)
    encoder = SpeakerEncoder(tensors)
    frames = torch.rand(1, 7, 40)
    states = frames[0]
    for layer in range(3):
        hidden, cell = torch.zeros(SIZE), torch.zeros(SIZE)
        outputs = []
        for x in states:
            gates = (
                tensors[f"lstm.weight_ih_l{layer}"] @ x
                + tensors[f"lstm.bias_ih_l{layer}"]
                + tensors[f"lstm.weight_hh_l{layer}"] @ hidden
                + tensors[f"lstm.bias_hh_l{layer}"]
            )
            enter, forget, new, out = gates.chunk(4)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            hidden = out.sigmoid() * cell.tanh()
            outputs.append(hidden)
        states = torch.stack(outputs)
    raw = (tensors["linear.weight"] @ states[-1] + tensors["linear.bias"]).relu()
    assert torch.allclose(encoder.point_of(frames), raw / raw.norm(), atol=1e-5)


def test_other_weights_are_refused() -> None:
    tensors = weights()
    del tensors["linear.bias"]
    with pytest.raises(RuntimeError, match=r"linear\.bias"):
        SpeakerEncoder(tensors)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    for find_package in (lambda _: None, lambda _: tmp_path):
        with pytest.raises(WeightsError, match="resemblyzer") as caught:
            SpeakerEncoder.load(find_package)
        assert caught.value.code == "weights_missing"
        assert "pip install" in caught.value.remedy


def test_other_weights_in_the_package_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pretrained.pt").write_bytes(b"something else")
    with pytest.raises(WeightsError, match="SHA-256") as caught:
        SpeakerEncoder.load(lambda _: tmp_path)
    assert caught.value.code == "weights_corrupt"


@pytest.mark.weights
def test_the_package_itself_is_not_imported(encoder: SpeakerEncoder) -> None:
    encoder.embed(noise(1))
    assert PACKAGE not in sys.modules


@pytest.mark.weights
def test_real_voices_are_told_apart(encoder: SpeakerEncoder, speech_folder: Path) -> None:
    files = {
        "joyce": ["librispeech/1089-134686-0000.flac", "librispeech/1089-134691-0001.flac"],
        "austen": ["librivox/austen-0870.wav", "librivox/austen-0890.wav"],
        "digits": [f"digits/{i}_theo_{j}.wav" for i in range(5) for j in (0, 1)],
    }
    points: dict[str, list[np.ndarray]] = {}
    for name, paths in files.items():
        sounds = [soundfile.read(speech_folder / path, dtype="float32") for path in paths]
        # The digits are short and have 8 kHz: joined, and each sample doubled.
        joined = np.concatenate([np.repeat(s, 16_000 // rate) for s, rate in sounds])
        points[name] = [
            encoder.embed(joined[start : start + 25_600])
            for start in range(0, min(len(joined), 160_000) - 25_600, 25_600)
        ]
    means = {name: np.mean(own, axis=0) for name, own in points.items()}
    for name, other in [*combinations(means, 2), *combinations(reversed(list(means)), 2)]:
        for point in points[name]:
            assert point @ means[name] > point @ means[other]
