from __future__ import annotations

from typing import Any

import pytest

from audiokv.models.ctranslate2 import read_model
from audiokv.models.whisper_settings import SpecialTokens, whisper_settings
from audiokv.streaming.errors import WeightsError


def make_settings(tiny: Any) -> dict[str, dict[str, Any]]:
    return whisper_settings(read_model(tiny.writer.to_bytes()), tiny.config, tiny.tokenizer)


def test_every_size_is_the_model_s_own(tiny_whisper: Any) -> None:
    config = make_settings(tiny_whisper)["config.json"]
    truth = tiny_whisper.model.config.to_dict()
    for key in (
        "vocab_size",
        "d_model",
        "num_mel_bins",
        "encoder_layers",
        "decoder_layers",
        "encoder_attention_heads",
        "decoder_attention_heads",
        "encoder_ffn_dim",
        "decoder_ffn_dim",
        "max_source_positions",
        "max_target_positions",
        "activation_function",
        "scale_embedding",
        "eos_token_id",
        "decoder_start_token_id",
    ):
        assert config[key] == truth[key], key
    assert config["dtype"] == "float32"


def test_generation_settings_carry_tokens_and_heads(tiny_whisper: Any) -> None:
    generation = make_settings(tiny_whisper)["generation_config.json"]
    assert generation["alignment_heads"] == [[1, 0], [2, 3]]
    assert generation["suppress_tokens"] == [1, 2]
    assert generation["begin_suppress_tokens"] == [7, 80]
    assert generation["no_timestamps_token_id"] == 90
    assert generation["prev_sot_token_id"] == 88
    assert generation["is_multilingual"] is False
    assert "lang_to_id" not in generation


def test_languages_and_tasks_of_a_multilingual_vocabulary(
    tiny_whisper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audiokv.models.whisper_settings.N_MULTILINGUAL_TOKENS", 96)
    generation = make_settings(tiny_whisper)["generation_config.json"]
    assert generation["is_multilingual"] is True
    assert generation["lang_to_id"] == {"<|en|>": 82, "<|de|>": 83, "<|haw|>": 84}
    assert generation["task_to_id"] == {"translate": 85, "transcribe": 86}


def test_the_hop_follows_the_number_of_positions(tiny_whisper: Any) -> None:
    preprocessor = make_settings(tiny_whisper)["preprocessor_config.json"]
    assert preprocessor["feature_size"] == 8
    assert preprocessor["hop_length"] == 30 * 16_000 // (2 * 50)


def test_another_activation_is_refused(tiny_whisper: Any) -> None:
    tiny_whisper.writer.add_number("decoder/activation", 0, 1)
    with pytest.raises(WeightsError, match="not GELU"):
        make_settings(tiny_whisper)


@pytest.mark.parametrize("key", ["alignment_heads", "suppress_ids", "suppress_ids_begin"])
def test_a_missing_setting_is_named(tiny_whisper: Any, key: str) -> None:
    del tiny_whisper.config[key]
    with pytest.raises(WeightsError, match=f"no {key}"):
        make_settings(tiny_whisper)


def test_a_missing_token_is_named(tiny_whisper: Any) -> None:
    tiny_whisper.tokenizer["added_tokens"].pop()
    with pytest.raises(WeightsError, match="notimestamps"):
        make_settings(tiny_whisper)


def test_a_tokenizer_without_added_tokens_has_none() -> None:
    assert SpecialTokens.from_tokenizer({}).ids == {}
