"""A tiny random Gemma-3n of the real classes: audio tower, audio embedder and text model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import Gemma3nAudioConfig, Gemma3nAudioEncoder, Gemma3nConfig

from audiokv.models.gemma3n.checkpoint import SpeechCheckpoint
from audiokv.models.gemma3n.speech_model import SpeechModel

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

AUDIO: dict[str, Any] = {
    "vocab_size": 8,
    "vocab_offset": 56,
    "input_feat_size": 128,
    "hidden_size": 24,
    "conf_num_attention_heads": 2,
    "conf_num_hidden_layers": 3,
    "sscp_conv_channel_size": (6, 4),
}
# Layers 1 and 3 are full-attention producers, 5 reads the keys of layer 3.
TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "vocab_size_per_layer_input": 48,
    "hidden_size": 32,
    "hidden_size_per_layer_input": 8,
    "intermediate_size": 32,
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 12,
    "max_position_embeddings": 1024,
    "laurel_rank": 4,
    "activation_sparsity_pattern": [0.0] * 6,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
SPECIAL: dict[str, Any] = {
    "boa_token_id": 3,
    "boi_token_id": 4,
    "eoi_token_id": 5,
    "image_token_id": 55,
    "eoa_token_id": 56,
    "audio_token_id": 57,
}
WORDS = {number: f"w{number}" for number in range(6, 64) if number not in {55, 56, 57}}


def tiny_encoder(**changes: Any) -> Any:
    """A random tower; changes go to its config."""
    made: Any = Gemma3nAudioEncoder(Gemma3nAudioConfig(**(AUDIO | changes)))
    enliven(made.eval())
    return made


def enliven(model: torch.nn.Module, seed: int = 3) -> None:
    """Give every weight a size at which it matters; fresh ones are near 0 or exactly 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim > 1:
                fan_in = weight[0].numel()
                weight.copy_(noise * (2.0 if "_proj" in name else 1.0) / fan_in**0.5)
            else:
                weight.add_(0.3 * noise)


def in_parts(tensor: Any, sizes: int | list[int], dim: int) -> list[torch.Tensor]:
    """A tensor cut along one of its dimensions."""
    return list(tensor.split(sizes, dim=dim))


def tiny_checkpoint(**changes: Any) -> Any:
    """A random model; changes go to its text config."""
    config = Gemma3nConfig(audio_config=AUDIO, text_config=TEXT | changes, **SPECIAL)
    made: Any = SpeechCheckpoint(config)
    made.eval()
    enliven(made)
    with torch.no_grad():
        made.model.language_model.embed_tokens.weight[1] *= 2.5  # so that texts come to an end
    return made


def write_tokenizer(folder: Path) -> None:
    """One token a word, as the digit model has it."""
    special = ["<pad>", "<eos>", "<bos>", "<boa>", "<boi>", "<eoi>"]
    added = dict(enumerate(special))
    added[56] = "<eoa>"
    vocabulary = {text: number for number, text in added.items()}
    vocabulary |= {word: number for number, word in WORDS.items()}
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<pad>"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, text in added.items()
        ],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")


def sound(n_samples: int, seed: int = 0, gain: float = 1.0) -> NDArray[np.float32]:
    """Noise whose loudness and colour change all the time, so that every slot is another."""
    generator = np.random.default_rng(seed)
    time = np.arange(n_samples) / 16_000
    tone = np.sin(2 * np.pi * (300 + 200 * np.sin(3 * time)) * time)
    envelope = gain * (0.2 + 0.15 * np.sin(11 * time + seed))
    loud = envelope * (tone + generator.standard_normal(n_samples))
    samples: NDArray[np.float32] = loud.astype(np.float32)
    return samples


@pytest.fixture(scope="session")
def encoder() -> Any:
    """A tiny random tower."""
    return tiny_encoder()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model as ``save_pretrained`` leaves it, with a tokenizer."""
    made = tmp_path_factory.mktemp("gemma3n")
    tiny_checkpoint().save_pretrained(made)
    write_tokenizer(made)
    return made


@pytest.fixture(scope="session")
def speech() -> SpeechModel:
    """The same model for streams."""
    checkpoint = tiny_checkpoint()
    checkpoint.model.language_model.set_attn_implementation("audiokv")
    return SpeechModel(checkpoint)
