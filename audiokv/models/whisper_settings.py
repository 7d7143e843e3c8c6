"""The settings files of Hugging Face's Whisper layout, built from a CTranslate2 model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audiokv.models.ctranslate2 import float_tensor, n_layers, unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.models.ctranslate2 import CTranslate2Model

GELU_ACTIVATION = 3  # CTranslate2's number for it
SAMPLE_RATE_HZ = 16_000
WINDOW_S = 30
N_MULTILINGUAL_TOKENS = 51_865  # vocabularies from this size on know many languages
LANGUAGE_TOKEN = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of Whisper's control tokens.

    Attributes:
        ids: Token text to id, for every added token of the tokenizer.
    """

    ids: Mapping[str, int]

    @classmethod
    def from_tokenizer(cls, tokenizer: Mapping[str, Any]) -> SpecialTokens:
        """Read them from a parsed ``tokenizer.json``."""
        return cls({token["content"]: token["id"] for token in tokenizer.get("added_tokens", ())})

    def __getitem__(self, text: str) -> int:
        try:
            return self.ids[text]
        except KeyError:
            raise unsupported(f"its tokenizer has no {text}") from None

    def languages(self) -> dict[str, int]:
        """Return the language tokens, such as ``<|de|>``, with their ids."""
        first, last = self["<|startoftranscript|>"], self["<|translate|>"]
        return {
            text: token_id
            for text, token_id in self.ids.items()
            if first < token_id < last and LANGUAGE_TOKEN.fullmatch(text)
        }


def whisper_settings(
    model: CTranslate2Model, ctranslate2_config: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Build the settings files of Hugging Face's layout from what the model itself says.

    Args:
        model: The parsed ``model.bin``; every size is taken from its tensors.
        ctranslate2_config: Its ``config.json``: ``suppress_ids``, ``suppress_ids_begin`` and
            ``alignment_heads`` as pairs of layer and head. Its ``lang_ids`` are not used: those of
            the English-only models are wrong by one.
        tokenizer: Its parsed ``tokenizer.json``.

    Returns:
        File name to contents.

    Raises:
        WeightsError: A size, a token or a setting is missing.
    """
    tensors = model.tensors
    if "decoder/activation" in tensors and int(tensors["decoder/activation"]) != GELU_ACTIVATION:
        raise unsupported("its activation is not GELU")
    for key in ("alignment_heads", "suppress_ids", "suppress_ids_begin"):
        if key not in ctranslate2_config:
            raise unsupported(f"its config.json has no {key}")
    tokens = SpecialTokens.from_tokenizer(tokenizer)
    embeddings = float_tensor(tensors, "decoder/embeddings/weight")
    conv = float_tensor(tensors, "encoder/conv1/weight")
    n_vocabulary, width = embeddings.shape
    is_multilingual = n_vocabulary >= N_MULTILINGUAL_TOKENS
    end, start = tokens["<|endoftext|>"], tokens["<|startoftranscript|>"]
    shared = {
        "begin_suppress_tokens": list(ctranslate2_config["suppress_ids_begin"]),
        "bos_token_id": end,
        "decoder_start_token_id": start,
        "eos_token_id": end,
        "pad_token_id": end,
        "suppress_tokens": list(ctranslate2_config["suppress_ids"]),
    }
    config: dict[str, Any] = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": width,
        "dtype": embeddings.dtype.name,
        "is_encoder_decoder": True,
        "max_source_positions": float_tensor(tensors, "encoder/position_encodings/encodings").shape[
            0
        ],
        "max_target_positions": float_tensor(tensors, "decoder/position_encodings/encodings").shape[
            0
        ],
        "num_mel_bins": conv.shape[1],
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "vocab_size": n_vocabulary,
    }
    for side in ("encoder", "decoder"):
        config[f"{side}_layers"] = n_layers(tensors, side)
        config[f"{side}_attention_heads"] = int(float_tensor(tensors, f"{side}/num_heads"))
        ffn = float_tensor(tensors, f"{side}/layer_0/ffn/linear_0/weight")
        config[f"{side}_ffn_dim"] = ffn.shape[0]
    generation: dict[str, Any] = {
        "alignment_heads": [list(pair) for pair in ctranslate2_config["alignment_heads"]],
        "is_multilingual": is_multilingual,
        "max_initial_timestamp_index": 50,
        "max_length": config["max_target_positions"],
        "no_timestamps_token_id": tokens["<|notimestamps|>"],
        "prev_sot_token_id": tokens["<|startofprev|>"],
        "return_timestamps": False,
    }
    if is_multilingual:
        generation["task"] = "transcribe"  # without one, transformers decodes with no task token
        generation["lang_to_id"] = tokens.languages()
        generation["task_to_id"] = {
            task: tokens[f"<|{task}|>"] for task in ("transcribe", "translate")
        }
    hop_samples = WINDOW_S * SAMPLE_RATE_HZ // (2 * config["max_source_positions"])
    return {
        "config.json": config | shared,
        "generation_config.json": generation | shared,
        "preprocessor_config.json": {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": conv.shape[1],
            "sampling_rate": SAMPLE_RATE_HZ,
            "chunk_length": WINDOW_S,
            "hop_length": hop_samples,
            "n_fft": 400,
            "padding_value": 0.0,
            "return_attention_mask": False,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "WhisperTokenizer",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
            "unk_token": "<|endoftext|>",
            "model_max_length": 1024,
        },
    }
