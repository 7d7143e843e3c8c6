"""Gemma 4 as the live loop calls it: ids and slots to embeddings, embeddings to logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.audio_llm.text_part import TextPart, without_per_layer
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.gemma4.tower_in_stream import Gemma4Tower
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Gemma4Speech(TextPart):
    """The parts of one model, for streams.

    Args:
        model: A ``Gemma4ForConditionalGeneration``; its weights are used in place, and its text
            model is told to use our attention.

    Raises:
        ConfigError: It has no audio tower, as the unified models have none, or one that looks
            ahead.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401  transformers is not typed
        parts = model.model
        if parts.audio_tower is None:
            raise ConfigError(
                "audio_tower_missing",
                f"This {model.config.model_type!r} model has no audio tower.",
                "Use a Gemma 4 that hears through one, such as E2B or E4B.",
            )
        super().__init__(parts.language_model, model.lm_head)
        self.tower = Gemma4Tower(parts.audio_tower)
        self._tower_weight = parts.audio_tower.subsample_conv_projection.input_proj_linear.weight
        self._embed_audio = parts.embed_audio

    def mel(self, frames: torch.Tensor) -> torch.Tensor:
        """Return mel frames, shape (n, mels), where and as the tower wants them."""
        return frames.unsqueeze(0).to(self.device, self._tower_weight.dtype)

    def slots(self, encodings: torch.Tensor) -> Inputs:
        """Embed the tower's slots, shape (1, n, audio hidden).

        Their identity is that of padding, as in ``Gemma4Model.forward``.
        """
        embeds = self._embed_audio(inputs_embeds=encodings).to(self.dtype)
        ids = torch.full(encodings.shape[:2], self.text_config.pad_token_id, device=self.device)
        return self._inputs(ids, embeds)

    def tokens(self, tokens: Sequence[int]) -> Inputs:
        """Embed tokens."""
        ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.device)
        return self._inputs(ids, self.language_model.embed_tokens(ids))

    def _inputs(self, ids: torch.Tensor, embeds: torch.Tensor) -> Inputs:
        if self.text_config.hidden_size_per_layer_input:
            return Inputs(embeds, self.language_model.get_per_layer_inputs(ids))
        return Inputs(embeds, without_per_layer(embeds))
