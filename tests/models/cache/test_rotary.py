from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CohereConfig, LlamaConfig, PhiConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi.modeling_phi import PhiRotaryEmbedding

from audiokv.models.cache.rotary import KeyRotation, rotation_for_layer
from audiokv.streaming.errors import ConfigError


def turned(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Embed raw keys as the models do, the unrotated rest left as it is."""
    rotated, rest = keys[..., : cos.shape[-1]], keys[..., cos.shape[-1] :]
    half = cos.shape[-1] // 2
    swapped = torch.cat((-rotated[..., half:], rotated[..., :half]), dim=-1)
    return torch.cat((rotated * cos + swapped * sin, rest), dim=-1)


def check_against(embedding: Any, config: Any, layer: int, size: int, *names: str) -> None:
    raw = torch.randn(1, 2, 6, size)
    at = torch.tensor([[3, 9, 20, 21, 40, 77]])
    to = at - 3
    moved_by_model = turned(raw, *embedding(raw, to, *names))
    rotation = rotation_for_layer(config, layer)
    assert rotation is not None
    moved = rotation.rotate(turned(raw, *embedding(raw, at, *names)), np.full(6, -3))
    assert torch.allclose(moved, moved_by_model, atol=2e-5)
    assert not torch.allclose(moved, raw, atol=1e-2)


def test_both_bases_and_partial_rotary_of_every_family(tiny: Any) -> None:
    if tiny.family == "whisper":
        assert rotation_for_layer(tiny.text_config, 0) is None
        return
    config = tiny.text_config
    base = getattr(tiny.model.model, "language_model", tiny.model.model)
    for layer in range(2):
        types = getattr(config, "layer_types", None)
        names = (types[layer],) if types else ()
        if tiny.family == "qwen3_omni":
            # Time, height and width are the same number for audio and text.
            check_against(
                lambda raw, at: base.rotary_emb(raw, at[None].expand(3, 1, -1)), config, layer, 8
            )
        else:
            size = config.per_layer_config[layer].head_dim
            check_against(base.rotary_emb, config, layer, size, *names)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 5e5,
        },
    ],
)
def test_scaled_frequencies_that_do_not_depend_on_length(scaling: dict[str, Any]) -> None:
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, rope_parameters=scaling)
    check_against(LlamaRotaryEmbedding(config), config, 0, 8)


def test_components_that_are_not_rotated_stay() -> None:
    half: dict[str, Any] = {"partial_rotary_factor": 0.5}
    config = PhiConfig(hidden_size=32, num_attention_heads=4, **half)
    check_against(PhiRotaryEmbedding(config), config, 0, 8)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}),
        CohereConfig(),
    ],
)
def test_rotations_that_are_none_are_refused(config: Any) -> None:
    with pytest.raises(ConfigError) as error:
        rotation_for_layer(config, 0)
    assert error.value.code == "rotary_unsupported"


def test_layer_types_without_rotary_positions_have_no_rotation() -> None:
    parameters: dict[str, Any] = {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": None,
        }
    }
    config = SimpleNamespace(layer_types=["sliding_attention", "full_attention"], **parameters)
    assert rotation_for_layer(config, 1) is None


@settings(deadline=None)
@given(st.integers(-40_000, 40_000))
def test_there_and_back_again(by: int) -> None:
    rotation = KeyRotation(1.0 / 10_000 ** (torch.arange(0, 16, 2) / 16))
    keys = torch.randn(1, 1, 3, 16)
    there = rotation.rotate(keys, np.full(3, by))
    assert torch.allclose(rotation.rotate(there, np.full(3, -by)), keys, atol=2e-6)
    assert torch.allclose(there.norm(dim=-1), keys.norm(dim=-1), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_type_of_the_keys_is_kept(dtype: torch.dtype) -> None:
    keys = torch.randn(1, 1, 2, 4, dtype=dtype)
    moved = KeyRotation(torch.tensor([1.0, 0.1])).rotate(keys, np.array([0, 5]))
    assert moved.dtype == dtype
    assert torch.equal(moved[:, :, 0], keys[:, :, 0])
