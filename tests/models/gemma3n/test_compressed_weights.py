from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from audiokv.models.gemma3n.compressed_weights import WeightFormat, compress, held_bytes
from audiokv.streaming.errors import WeightsError
from tests.models.gemma3n.conftest import tiny_checkpoint

# Wide enough for blocks of 64; hidden 64 x 6 layers of per-layer embeddings.
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "hidden_size_per_layer_input": 32,
    "head_dim": 16,
}
IDS = torch.arange(6, 26)[None]


def model(dtype: torch.dtype = torch.float32) -> Any:
    return tiny_checkpoint(**SIZES).to(dtype)


def logits(checkpoint: Any) -> torch.Tensor:
    with torch.no_grad():
        hidden = checkpoint.model.language_model(input_ids=IDS).last_hidden_state
        made: torch.Tensor = checkpoint.lm_head(hidden).float()
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "max_difference", "max_share"),
    [(WeightFormat.INT8, 0.1, 0.45), (WeightFormat.INT4, 0.6, 0.35)],
)
def test_weights_take_less_and_logits_stay_near(
    kind: WeightFormat, dtype: torch.dtype, max_difference: float, max_share: float
) -> None:
    expected = logits(model())
    full_bytes = held_bytes(model().model.language_model.layers)
    checkpoint = model(dtype)
    kept = {
        name: weight.clone()
        for name, weight in checkpoint.named_parameters()
        if "audio" in name or "altup" in name or name.endswith("embed_tokens.weight")
    }
    compress(checkpoint, kind)
    difference = (logits(checkpoint) - expected).norm() / expected.norm()
    assert 1e-4 < difference < max_difference
    layers = checkpoint.model.language_model.layers
    assert held_bytes(layers) < max_share * full_bytes
    assert checkpoint.lm_head.weight.dtype == dtype
    after = dict(checkpoint.named_parameters())
    assert kept
    for name, weight in kept.items():
        torch.testing.assert_close(after[name], weight, atol=0, rtol=0)


@pytest.mark.parametrize("kind", [WeightFormat.INT8, WeightFormat.INT4])
def test_per_layer_embeddings_are_held_smaller_and_scaled_as_before(kind: WeightFormat) -> None:
    checkpoint = model()
    text = checkpoint.model.language_model
    expected = text.get_per_layer_inputs(IDS)
    full_bytes = held_bytes(text.embed_tokens_per_layer)
    compress(checkpoint, kind)
    made = text.get_per_layer_inputs(IDS)
    assert made.shape == expected.shape
    difference = (made - expected).norm() / expected.norm()
    assert 1e-4 < difference < (0.02 if kind == WeightFormat.INT8 else 0.15)
    assert held_bytes(text.embed_tokens_per_layer) < 0.3 * full_bytes


def test_full_weights_are_left_alone() -> None:
    checkpoint = model()
    compress(checkpoint, WeightFormat.FULL)
    torch.testing.assert_close(logits(checkpoint), logits(model()), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("kind", "module", "package"),
    [
        (WeightFormat.INT8, "torchao.quantization", "torchao"),
        (WeightFormat.INT4, "bitsandbytes.nn", "bitsandbytes"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: WeightFormat, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(WeightsError, match=package) as caught:
        compress(model(), kind)
    assert caught.value.code == f"{package}_missing"
    assert "audiokv[gemma]" in caught.value.remedy
