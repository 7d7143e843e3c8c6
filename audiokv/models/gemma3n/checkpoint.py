"""A Gemma-3n's audio tower, audio embedder and text model; its vision part is never built."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import Gemma3nAudioEncoder, Gemma3nConfig, Gemma3nTextModel
from transformers.models.gemma3n.modeling_gemma3n import (
    Gemma3nMultimodalEmbedder,
    Gemma3nPreTrainedModel,
)

from audiokv.models.cache import ATTENTION

if TYPE_CHECKING:
    from pathlib import Path


class SpeechParts(nn.Module):
    """The parts under the names they have in a checkpoint.

    Args:
        config: The whole model's config.
    """

    def __init__(self, config: Any) -> None:  # noqa: ANN401  transformers is not typed
        super().__init__()
        self.audio_tower = Gemma3nAudioEncoder(config.audio_config)
        self.embed_audio = Gemma3nMultimodalEmbedder(config.audio_config, config.text_config)
        self.language_model = Gemma3nTextModel(config.text_config)


class SpeechCheckpoint(Gemma3nPreTrainedModel):  # type: ignore[no-untyped-call]  # typed in part
    """What ``from_pretrained`` fills: sharded or single safetensors, in any type.

    Args:
        config: The whole model's config.
    """

    _tied_weights_keys = {"lm_head.weight": "model.language_model.embed_tokens.weight"}  # noqa: RUF012  transformers' own form
    _keys_to_ignore_on_load_unexpected = [  # noqa: RUF012  likewise
        r"(^|\.)vision_tower\.",
        r"(^|\.)embed_vision\.",
    ]

    def __init__(self, config: Any) -> None:  # noqa: ANN401  transformers is not typed
        super().__init__(config)
        text = config.text_config
        self.model = SpeechParts(config)
        self.lm_head = nn.Linear(text.hidden_size, text.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]  # transformers is typed in part

    def get_input_embeddings(self) -> nn.Module:
        """Return the word embeddings."""
        language_model: Any = self.model.language_model
        embeddings: nn.Module = language_model.embed_tokens
        return embeddings

    def get_output_embeddings(self) -> nn.Module:
        """Return the output layer, which is tied to them."""
        head: nn.Module = self.lm_head
        return head


def load_checkpoint(folder: Path, dtype: torch.dtype, device: torch.device) -> SpeechCheckpoint:
    """Load the weights of a model folder.

    Args:
        folder: Folder with ``config.json`` and safetensors.
        dtype: Type to hold the weights in.
        device: Where to hold them.

    Raises:
        KeyError: A tensor is missing.
        ValueError: The config describes no such model, or a tensor has another shape.
    """
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    # Reading the vision config asks for a library that is of no use here.
    settings.pop("vision_config", None)
    for name in ("text_config", "audio_config"):
        if not isinstance(settings.get(name), dict):
            raise KeyError(f"config.json has no {name}")
    try:
        config = Gemma3nConfig(**settings)
    except StrictDataclassError as error:
        raise ValueError(f"config.json cannot be used ({error})") from error
    load: Any = SpeechCheckpoint.from_pretrained  # its result depends on what it is asked for
    model, found = load(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        ignore_mismatched_sizes=True,  # told below, with the tensor's name
        output_loading_info=True,
    )
    if found["missing_keys"]:
        raise KeyError(f"there is no tensor {min(found['missing_keys'])}")
    if found["mismatched_keys"]:
        name, stored, expected = min(found["mismatched_keys"])
        raise ValueError(f"{name} has the shape {tuple(stored)}, not {tuple(expected)}")
    model.model.language_model.set_attn_implementation(ATTENTION)
    loaded: SpeechCheckpoint = model.eval().requires_grad_(requires_grad=False).to(device)
    return loaded


def best_device() -> torch.device:
    """Return the accelerator where there is one, else the processor."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def best_dtype(device: torch.device) -> torch.dtype:
    """Return the type that suits a device: full precision where bfloat16 would be slower."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
