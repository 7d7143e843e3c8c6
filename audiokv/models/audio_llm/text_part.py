"""The text model of a language model that hears: where it is, a pass, and logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.cache import ATTENTION

if TYPE_CHECKING:
    from transformers.cache_utils import Cache

    from audiokv.models.gemma3n.speech_model import Inputs


class TextPart:
    """The part of a ``HearingModel`` that the classes have in common.

    Args:
        language_model: The text model without its head; it is told to use our attention.
        lm_head: Its head.
    """

    def __init__(self, language_model: Any, lm_head: Any) -> None:  # noqa: ANN401  transformers is not typed
        language_model.set_attn_implementation(ATTENTION)
        self.text_config = language_model.config
        self.language_model = language_model
        self._lm_head = lm_head
        self._softcap: float | None = getattr(self.text_config, "final_logit_softcapping", None)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._lm_head.weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights, and so of cached keys and values."""
        dtype: torch.dtype = self._lm_head.weight.dtype
        return dtype

    @property
    def full_attention_layers(self) -> list[int]:
        """Layers that attend to everything held, those that share another's keys included."""
        n_layers = self.text_config.num_hidden_layers
        types = getattr(self.text_config, "layer_types", None) or ["full_attention"] * n_layers
        return [index for index, kind in enumerate(types) if kind == "full_attention"]

    def run(self, inputs: Inputs, cache: Cache) -> torch.Tensor:
        """Feed the next positions, which join the cache.

        Per-layer embeddings are passed where the model has them.

        Returns:
            Hidden states, shape (n, hidden).
        """
        extra = {"per_layer_inputs": inputs.per_layer} if inputs.per_layer.numel() else {}
        out = self.language_model(inputs_embeds=inputs.embeds, cache=cache, use_cache=True, **extra)
        hidden: torch.Tensor = out.last_hidden_state[0]
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits of hidden states, shape (n, vocabulary)."""
        logits: torch.Tensor = self._lm_head(hidden).float()
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits


def without_per_layer(embeds: torch.Tensor) -> torch.Tensor:
    """Return the per-layer embeddings of a model that has none, for embeddings (1, n, hidden)."""
    return embeds.new_empty((*embeds.shape[:2], 0, 0))
