"""A small Gemma-3n for spoken digits: its configuration, parts, prompt and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import (
    Gemma3nAudioConfig,
    Gemma3nConfig,
    Gemma3nTextConfig,
    Gemma3nVisionConfig,
)
from transformers.models.gemma3n.modeling_gemma3n import (
    Gemma3nAudioEncoder,
    Gemma3nMultimodalEmbedder,
    Gemma3nTextModel,
)

if TYPE_CHECKING:
    from torch import Tensor

PAD, EOS, BOS, BOA, DIGIT_0 = 0, 1, 2, 3, 4
UNKNOWN, BOI = 14, 15
N_TEXT_TOKENS = 16
VISION_OFFSET, N_VISION_TOKENS = 16, 8
AUDIO_OFFSET, N_AUDIO_TOKENS = 24, 8
EOA, AUDIO_TOKEN = 24, 25
VOCABULARY = AUDIO_OFFSET + N_AUDIO_TOKENS
N_DIGITS = 10


def digits_config() -> Any:  # noqa: ANN401  transformers types its parts as dicts too
    """Return the configuration: the real one's structure, at 4 million parameters."""
    audio = Gemma3nAudioConfig(
        hidden_size=128,
        conf_num_attention_heads=4,
        conf_num_hidden_layers=4,
        sscp_conv_channel_size=(8, 16),
        vocab_size=N_AUDIO_TOKENS,
        vocab_offset=AUDIO_OFFSET,
    )
    text = Gemma3nTextConfig(
        vocab_size=VOCABULARY,
        vocab_size_per_layer_input=N_TEXT_TOKENS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        hidden_size_per_layer_input=16,
        altup_num_inputs=2,
        num_kv_shared_layers=2,
        laurel_rank=16,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"] * 3,
        activation_sparsity_pattern=[0.0] * 6,
        max_position_embeddings=32_768,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
    )
    vision = Gemma3nVisionConfig(vocab_size=N_VISION_TOKENS, vocab_offset=VISION_OFFSET)
    return Gemma3nConfig(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        boi_token_id=BOI,
        eoi_token_id=VISION_OFFSET,
        image_token_id=VISION_OFFSET + 1,
        boa_token_id=BOA,
        eoa_token_id=EOA,
        audio_token_id=AUDIO_TOKEN,
        architectures=["Gemma3nForConditionalGeneration"],
    )


def fresh_model(config: Any) -> DigitsModel:  # noqa: ANN401  a Gemma3nConfig
    """Return a model to train.

    The classes draw all weights with the deviation 0.02 that suits a width of 2,048. At a width of
    128 the signal would be lost in the first layers, so here it is one over the root of the number
    of inputs, which is about the same thing there.
    """
    model = DigitsModel(config)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    return model


class DigitsModel(nn.Module):
    """Audio tower, audio embedder and text model, named as in the full checkpoint.

    Args:
        config: Of the whole model; its vision part is not built.
    """

    def __init__(self, config: Any) -> None:  # noqa: ANN401  a Gemma3nConfig
        super().__init__()
        self.config = config
        self.audio_tower: Any = Gemma3nAudioEncoder(config.audio_config)
        self.embed_audio: Any = Gemma3nMultimodalEmbedder(config.audio_config, config.text_config)
        self.language_model: Any = Gemma3nTextModel(config.text_config)

    def hear(self, mel: Tensor) -> Tensor:
        """Return the audio slots of mel frames, shape (batch, slots, text hidden).

        Args:
            mel: Shape (batch, frames, mel bins), normalised; 16 frames a slot.
        """
        slots: Tensor = self.embed_audio(inputs_embeds=self.encode(mel))
        return slots.float()

    def encode(self, mel: Tensor) -> Tensor:
        """Return the tower's own outputs, shape (batch, slots, tower hidden)."""
        is_padding = torch.zeros(mel.shape[:2], dtype=torch.bool)
        encoded: Tensor = self.audio_tower(mel, is_padding).last_hidden_state
        return encoded.float()

    def embed(self, ids: Tensor) -> Tensor:
        """Return token embeddings; ids from the audio vocabulary go through its own table."""
        is_audio = ids >= AUDIO_OFFSET
        text = self.language_model.embed_tokens(ids.masked_fill(is_audio, PAD))
        audio = self.embed_audio(input_ids=ids.masked_fill(~is_audio, EOA))
        return torch.where(is_audio[..., None], audio, text)

    def logits(self, ids: Tensor, embeddings: Tensor, **options: Any) -> Tensor:  # noqa: ANN401
        """Return logits of the text model over the tied vocabulary.

        Args:
            ids: Shape (batch, n); choose the per-layer embeddings, as in the full model.
            embeddings: Shape (batch, n, hidden).
            options: For the text model, such as ``cache``.
        """
        hidden = self.language_model(
            inputs_embeds=embeddings,
            per_layer_inputs=self.language_model.get_per_layer_inputs(ids),
            **options,
        ).last_hidden_state
        logits = hidden.float() @ self.language_model.embed_tokens.weight.float().T
        cap = self.config.text_config.final_logit_softcapping
        capped: Tensor = torch.tanh(logits / cap) * cap
        return capped
