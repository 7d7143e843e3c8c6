"""Transformers' own Gemma-3n over a whole clip, without cache: what the live path must match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModel, Gemma3nAudioFeatureExtractor, Gemma3nForConditionalGeneration
from transformers.models.gemma3n import modeling_gemma3n

from tests.models.gemma3n.conftest import tiny_checkpoint

if TYPE_CHECKING:
    import numpy as np

BOS, BOA, EOA, AUDIO = 2, 3, 56, 57


class _WithoutVision:
    """Builds every part but the vision tower, whose library is not installed."""

    @staticmethod
    def from_config(config: Any) -> Any:
        if config.model_type == "gemma3n_vision":
            return torch.nn.Identity()
        from_config: Any = AutoModel.from_config
        return from_config(config)


class Reference:
    """The tiny model in transformers' own class."""

    def __init__(self) -> None:
        checkpoint = tiny_checkpoint()
        module: Any = modeling_gemma3n
        original = module.AutoModel
        module.AutoModel = _WithoutVision
        try:
            build: Any = Gemma3nForConditionalGeneration
            self.model = build(checkpoint.config)
        finally:
            module.AutoModel = original
        self.model.eval()
        found = self.model.load_state_dict(checkpoint.state_dict(), strict=False)
        assert not found.unexpected_keys
        assert all("embed_vision" in key for key in found.missing_keys)

    @torch.no_grad()
    def logits(self, samples: np.ndarray, text: list[int], n_padding: int = 0) -> torch.Tensor:
        """Logits that predict each token of the text and the one after it."""
        made = Gemma3nAudioFeatureExtractor()(
            samples, padding=False, truncation=False, pad_to_multiple_of=None
        )
        mel = torch.from_numpy(made["input_features"][0])[None]
        n_slots = -(-mel.shape[1] // 16) + n_padding
        self.model.model.config.audio_soft_tokens_per_image = n_slots
        ids = [BOS, BOA, *[AUDIO] * n_slots, EOA, *text]
        out = self.model(
            input_ids=torch.tensor([ids]),
            input_features=mel,
            input_features_mask=torch.ones(mel.shape[:2], dtype=torch.bool),
        )
        logits: torch.Tensor = out.logits[0, -len(text) - 1 :]
        return logits

    def greedy(self, samples: np.ndarray, text: list[int], n_tokens: int) -> list[int]:
        """The text's likeliest continuation, up to the end or a number of tokens."""
        said = list(text)
        while len(said) - len(text) < n_tokens:
            logits = self.logits(samples, said)[-1].clone()
            logits[[0, BOS, BOA, 4, 5, 55, EOA, AUDIO]] = -torch.inf
            if int(logits.argmax()) == 1:
                break
            said.append(int(logits.argmax()))
        return said[len(text) :]
