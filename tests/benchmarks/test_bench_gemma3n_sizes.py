from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from transformers import Gemma3nConfig

from audiokv.models.cache import ATTENTION
from benchmarks.gemma3n_sizes import SIZES, build_model, layer_kinds, real_config, weight_bytes

CPU = torch.device("cpu")
FULL, SLIDING = "full_attention", "sliding_attention"


def small_config() -> Any:
    """Twelve layers, of which four read other layers' keys and ten are sparse."""
    return Gemma3nConfig(
        text_config={
            "vocab_size": 512,
            "vocab_size_per_layer_input": 512,
            "hidden_size": 32,
            "hidden_size_per_layer_input": 8,
            "intermediate_size": 32,
            "num_hidden_layers": 12,
            "num_kv_shared_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "layer_types": [SLIDING, FULL] * 6,
            "sliding_window": 16,
            "laurel_rank": 4,
            "activation_sparsity_pattern": [0.95] * 4 + [0.0] * 8,
            "max_position_embeddings": 4096,
        },
        audio_config={
            "vocab_size": 8,
            "vocab_offset": 504,
            "hidden_size": 24,
            "conf_num_attention_heads": 2,
            "conf_num_hidden_layers": 3,
            "sscp_conv_channel_size": (6, 4),
        },
    )


@pytest.mark.parametrize(
    ("size", "n_layers", "n_shared", "width"), [("E2B", 30, 10, 8192), ("E4B", 35, 15, 16384)]
)
def test_the_published_sizes(size: str, n_layers: int, n_shared: int, width: int) -> None:
    config = real_config(size)
    kinds = layer_kinds(config.text_config)
    assert len(kinds) == n_layers
    assert sum(is_shared for _, is_shared, _ in kinds) == n_shared
    assert set(config.text_config.intermediate_size) == {width}
    assert [i for i, kind in enumerate(kinds) if kind[0] == FULL] == list(range(4, n_layers, 5))
    assert sum(is_sparse for *_, is_sparse in kinds) == 10
    assert set(SIZES) == {"E2B", "E4B"}


def test_a_cut_model_has_one_layer_of_each_kind_in_the_real_width() -> None:
    config = small_config()
    cut = build_model(config, CPU, torch.float32, is_whole=False, vocabulary=256)
    assert cut.kinds == tuple(dict.fromkeys(layer_kinds(config.text_config)))
    assert cut.layer_counts == Counter(layer_kinds(config.text_config))
    assert len(cut.checkpoint.model.language_model.layers) == 6
    assert not cut.is_whole
    assert (cut.n_built_blocks, cut.n_blocks) == (2, 3)
    assert cut.vocabulary_share == 0.5
    layer = cut.checkpoint.model.language_model.layers[0]
    assert layer.mlp.gate_proj.weight.shape == (32, 32)
    assert cut.checkpoint.model.language_model.config._attn_implementation == ATTENTION


def test_a_whole_model_has_all_layers_of_the_type_asked_for() -> None:
    cut = build_model(small_config(), CPU, torch.bfloat16, is_whole=True, vocabulary=256)
    assert cut.is_whole
    assert len(cut.kinds) == 12
    assert cut.n_built_blocks == 3
    weights = list(cut.checkpoint.parameters())
    assert {weight.dtype for weight in weights} == {torch.bfloat16}
    assert all(bool(weight.isfinite().all()) for weight in weights)
    assert all(float(weight.float().std()) > 0.001 for weight in weights if weight.numel() > 16)


def test_the_weights_are_counted_without_tables() -> None:
    n_bytes = weight_bytes(real_config("E2B"), torch.bfloat16)
    assert 5.0e9 < n_bytes < 5.4e9
    assert weight_bytes(real_config("E2B"), torch.float32) == 2 * n_bytes
