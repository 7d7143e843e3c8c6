"""Qwen3-Omni's thinker as the live loop calls it: ids and slots to embeddings, those to logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.audio_llm.text_part import TextPart, without_per_layer
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.qwen_omni.window_encoder import WindowEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence


class QwenOmniSpeech(TextPart):
    """The parts of one model, for streams.

    Positions count text and audio alike, one each, which is what the class does where there are
    neither pictures nor films.

    Args:
        model: A ``Qwen3OmniMoeThinkerForConditionalGeneration``; its weights are used in place, and
            its text model is told to use our attention.

    Raises:
        ConfigError: Its audio encoder has other windows than this loop knows.
    """

    def __init__(self, model: Any) -> None:  # noqa: ANN401  transformers is not typed
        self.encoder = WindowEncoder(model.model.audio_tower)
        super().__init__(model.model.language_model, model.lm_head)

    def slots(self, encodings: torch.Tensor) -> Inputs:
        """Return the encoder's slots, shape (1, n, hidden), as the text model takes them."""
        embeds = encodings.to(self.device, self.dtype)
        return Inputs(embeds, without_per_layer(embeds))

    def tokens(self, tokens: Sequence[int]) -> Inputs:
        """Embed tokens."""
        ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.device)
        embeds = self.language_model.embed_tokens(ids)
        return Inputs(embeds, without_per_layer(embeds))
