"""Gemma-3n as the live path calls it: ids and slots to embeddings, embeddings to logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.audio_llm.text_part import TextPart
from audiokv.models.gemma3n.tower import StreamingTower

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Inputs:
    """What positions of the text model are fed with.

    Attributes:
        embeds: Shape (1, n, hidden).
        per_layer: Per-layer embeddings, shape (1, n, layers, size); without them the model would
            lose what they say about each token's identity.
    """

    embeds: torch.Tensor
    per_layer: torch.Tensor

    def __len__(self) -> int:
        return int(self.embeds.shape[1])

    def __getitem__(self, span: slice) -> Inputs:
        return Inputs(self.embeds[:, span], self.per_layer[:, span])

    @staticmethod
    def joined(parts: Sequence[Inputs]) -> Inputs:
        """Return several one after the other; at least one."""
        return Inputs(
            torch.cat([part.embeds for part in parts], dim=1),
            torch.cat([part.per_layer for part in parts], dim=1),
        )


class SpeechModel(TextPart):
    """The parts of one model, for streams.

    Args:
        checkpoint: Its weights, a ``SpeechCheckpoint``.

    Raises:
        ConfigError: Its audio tower looks ahead.
    """

    def __init__(self, checkpoint: Any) -> None:  # noqa: ANN401  transformers is not typed
        parts = checkpoint.model
        super().__init__(parts.language_model, checkpoint.lm_head)
        self.config = checkpoint.config
        self.tower = StreamingTower(parts.audio_tower)
        self._tower_weight = parts.audio_tower.subsample_conv_projection.input_proj_linear.weight
        self._embed_audio = parts.embed_audio

    def mel(self, frames: torch.Tensor) -> torch.Tensor:
        """Return mel frames where and as the tower wants them.

        Args:
            frames: Shape (n, mels), on the processor.
        """
        return frames.unsqueeze(0).to(self.device, self._tower_weight.dtype)

    def slots(self, encodings: torch.Tensor) -> Inputs:
        """Embed the tower's slots.

        Args:
            encodings: Shape (1, n, audio hidden).
        """
        embeds = self._embed_audio(inputs_embeds=encodings).to(self.dtype)
        # Their identity is that of the placeholder, as in Gemma3nModel.forward.
        ids = torch.full(encodings.shape[:2], self.config.audio_token_id, device=self.device)
        return Inputs(embeds, self.language_model.get_per_layer_inputs(ids))

    def tokens(self, tokens: Sequence[int]) -> Inputs:
        """Embed tokens; those of the audio vocabulary have an embedder of their own."""
        ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.device)
        embeds = self.language_model.embed_tokens(ids)
        offset = self._embed_audio.vocab_offset
        is_audio = ids >= offset
        if bool(is_audio.any()):
            last = offset + self._embed_audio.vocab_size - 1
            hard = self._embed_audio(input_ids=torch.where(is_audio, ids, last))
            embeds = torch.where(is_audio.unsqueeze(-1), hard.to(embeds.dtype), embeds)
        return Inputs(embeds, self.language_model.get_per_layer_inputs(ids))

    def padding(self, n_slots: int) -> Inputs:
        """Return what transformers' processor fills a short clip up with.

        The embedding is that of the vocabulary's last token, the identity the placeholder's.
        """
        last = self.text_config.vocab_size - 1
        ids = torch.full((1, n_slots), last, device=self.device)
        embeds = self._embed_audio(input_ids=ids).to(self.dtype)
        placeholders = torch.full_like(ids, self.config.audio_token_id)
        return Inputs(embeds, self.language_model.get_per_layer_inputs(placeholders))
