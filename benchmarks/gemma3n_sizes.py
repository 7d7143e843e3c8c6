"""The published sizes of Gemma-3n, and cut-down models that cost the same layer by layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import Gemma3nConfig
from transformers.initialization import no_init_weights

from audiokv.models.cache import ATTENTION
from audiokv.models.gemma3n.checkpoint import SpeechCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

# Text sizes in which E2B and E4B differ from each other; all else is the class's default.
SIZES: Mapping[str, Mapping[str, int]] = {
    "E2B": {"num_hidden_layers": 30, "num_kv_shared_layers": 10, "intermediate_size": 8192},
    "E4B": {"num_hidden_layers": 35, "num_kv_shared_layers": 15, "intermediate_size": 16384},
}
_SPREAD = 0.02
_CUT_VOCABULARY = 32_800  # an eighth of the real one; the last ids are the audio's
_CUT_BLOCKS = 2

LayerKind = tuple[str, bool, bool]
"""Attention type, whether it reads another layer's keys, whether its activations are sparse."""


def real_config(size: str) -> Any:  # noqa: ANN401  transformers is not typed
    """Return the config of a published size: the class's defaults but for `SIZES`."""
    return Gemma3nConfig(text_config=dict(SIZES[size]))


def layer_kinds(text_config: Any) -> list[LayerKind]:  # noqa: ANN401  transformers is not typed
    """Return the kind of each layer."""
    first_shared = text_config.num_hidden_layers - text_config.num_kv_shared_layers
    return [
        (kind, index >= first_shared, sparsity > 0)
        for index, (kind, sparsity) in enumerate(
            zip(text_config.layer_types, text_config.activation_sparsity_pattern, strict=True)
        )
    ]


@dataclass(frozen=True, slots=True)
class CutModel:
    """A model with the real widths and random weights that has only some of the layers.

    Attributes:
        checkpoint: Its weights, a ``SpeechCheckpoint`` with our attention.
        kinds: Kind of each layer it has.
        layer_counts: How many layers of each kind the real model has.
        n_blocks: Conformer blocks of the real audio tower.
        n_built_blocks: Those it has.
        vocabulary_share: Its part of the real output vocabulary.
    """

    checkpoint: Any
    kinds: tuple[LayerKind, ...]
    layer_counts: Mapping[LayerKind, int]
    n_blocks: int
    n_built_blocks: int
    vocabulary_share: float

    @property
    def is_whole(self) -> bool:
        """Whether every layer is there."""
        return len(self.kinds) == sum(self.layer_counts.values())


def build_model(
    config: Any,  # noqa: ANN401  transformers is not typed
    device: torch.device,
    dtype: torch.dtype,
    *,
    is_whole: bool,
    vocabulary: int = _CUT_VOCABULARY,
) -> CutModel:
    """Build a model that costs what a real one costs, layer by layer.

    Args:
        config: The whole model's.
        device: Where it runs.
        dtype: Type of its weights.
        is_whole: Whether to build every layer, else one of each kind and two blocks of the tower.
            Embedding tables are cut either way: a look-up costs the same in any of them.
        vocabulary: Tokens it is left with.
    """
    kinds = layer_kinds(config.text_config)
    built = (
        list(range(len(kinds))) if is_whole else [kinds.index(one) for one in dict.fromkeys(kinds)]
    )
    text, audio = config.text_config.to_dict(), config.audio_config.to_dict()
    share = vocabulary / text["vocab_size"]
    audio["vocab_offset"] = vocabulary - audio["vocab_size"]
    n_blocks = audio["conf_num_hidden_layers"]
    audio["conf_num_hidden_layers"] = n_blocks if is_whole else min(_CUT_BLOCKS, n_blocks)
    text |= {
        "vocab_size": vocabulary,
        "vocab_size_per_layer_input": vocabulary,
        "num_hidden_layers": len(built),
        "num_kv_shared_layers": sum(kinds[index][1] for index in built),
    }
    for name in ("layer_types", "activation_sparsity_pattern", "intermediate_size"):
        text[name] = [text[name][index] for index in built]
    cut = Gemma3nConfig(
        text_config=text,
        audio_config=audio,
        audio_token_id=vocabulary - 2,
        tie_word_embeddings=True,
    )
    checkpoint = _random_checkpoint(cut, device, dtype)
    checkpoint.model.language_model.set_attn_implementation(ATTENTION)
    return CutModel(
        checkpoint,
        tuple(kinds[index] for index in built),
        Counter(kinds),
        n_blocks,
        audio["conf_num_hidden_layers"],
        share,
    )


def _random_checkpoint(config: Any, device: torch.device, dtype: torch.dtype) -> Any:  # noqa: ANN401  transformers is not typed
    with no_init_weights(), torch.device(device):  # filled below, and much faster
        checkpoint: Any = SpeechCheckpoint(config)
        checkpoint = checkpoint.to(dtype)
    with torch.no_grad():
        for weight in checkpoint.parameters():
            weight.uniform_(-_SPREAD, _SPREAD)
    return checkpoint.eval().requires_grad_(requires_grad=False)


def weight_bytes(config: Any, dtype: torch.dtype) -> int:  # noqa: ANN401  transformers is not typed
    """Return what the weights take without embedding tables, which are cut."""
    with torch.device("meta"):
        whole: Any = SpeechCheckpoint(config)
    tables = {"embed_tokens", "embed_tokens_per_layer", "lm_head"}
    n_weights: int = sum(
        weight.numel()
        for name, weight in whole.named_parameters()
        if not tables & set(name.split("."))
    )
    return n_weights * dtype.itemsize
