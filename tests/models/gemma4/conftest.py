"""A tiny random Gemma 4 of the real classes: audio tower, audio embedder and text model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    Gemma4AudioConfig,
    Gemma4AudioModel,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
)

from tests.models.gemma3n.conftest import enliven

AUDIO: dict[str, Any] = {
    "hidden_size": 24,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "subsampling_conv_channels": [128, 4],  # the class takes the first for the number of mels
    "output_proj_dims": 20,
}
# Layers 1 and 3 are full-attention producers, 5 reads the keys of layer 3. A fourth of each wide
# head turns with the position (p-RoPE), as in the real model.
TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "hidden_size": 32,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": 32,
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 12,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
SPECIAL: dict[str, Any] = {
    "boa_token_id": 3,
    "eoa_token_id": 56,
    "audio_token_id": 57,
    "image_token_id": 58,
    "video_token_id": 59,
}


def tiny_tower(**changes: Any) -> Any:
    """A random tower; changes go to its config."""
    made: Any = Gemma4AudioModel(Gemma4AudioConfig(**(AUDIO | changes)))
    enliven(made.eval())
    with torch.no_grad():
        for name, buffer in made.named_buffers():
            if name.endswith(("input_max", "output_max")):
                buffer.fill_(2.5)  # so that clipping counts
            elif name.endswith(("input_min", "output_min")):
                buffer.fill_(-2.0)
    return made


def tiny_gemma4(**changes: Any) -> Any:
    """A random model without vision; changes go to its text config."""
    config = Gemma4Config(
        audio_config=AUDIO, text_config=TEXT | changes, vision_config=None, **SPECIAL
    )
    made: Any = Gemma4ForConditionalGeneration(config)
    enliven(made.eval())
    return made


@pytest.fixture(scope="session")
def tower() -> Any:
    """A tiny random tower."""
    return tiny_tower()
