"""docs/cache.md, run as it stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LlamaConfig,
    LlamaForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

import audiokv.models.cache
from audiokv.streaming.policy.registry import POLICY_NAMES

if TYPE_CHECKING:
    from pathlib import Path

SMALL: dict[str, Any] = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1}


@pytest.fixture
def document(repository: Path) -> str:
    return (repository / "docs" / "cache.md").read_text("utf-8")


@pytest.fixture
def llama_folder(tmp_path: Path) -> Path:
    """A random Llama that never ends its text."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **SMALL,
        hidden_size=16,
        intermediate_size=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def whisper() -> WhisperForConditionalGeneration:
    """A random Whisper with the layers and heads of Whisper base, and nothing else of it."""
    config = WhisperConfig(
        **SMALL,
        d_model=16,
        encoder_layers=1,
        decoder_layers=6,
        encoder_attention_heads=2,
        decoder_attention_heads=8,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        max_source_positions=400,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.set_attn_implementation("audiokv")
    return model


def test_the_document_runs_as_it_stands(
    document: str,
    llama_folder: Path,
    whisper: WhisperForConditionalGeneration,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    assert sum(map(bool, blocks[0].splitlines())) == 5
    names: dict[str, Any] = {
        "folder": llama_folder,
        "prompt": torch.randint(0, 64, (1, 70)),
        "whisper": whisper,
    }
    for block in blocks:
        exec(compile(block, "docs/cache.md", "exec"), names)  # noqa: S102  our own document
        if block == blocks[0]:
            assert names["output"].shape == (1, 370)
            assert names["cache"].held == 256
            assert names["cache"].seen == 369
    assert capsys.readouterr().out.startswith("256 of 369 slots, ")
    assert names["cache"].ledger.is_committed.sum() == 20
    with torch.no_grad():
        whisper(
            input_features=torch.randn(1, 8, 800),
            decoder_input_ids=torch.tensor([[3, 4, 5]]),
            past_key_values=EncoderDecoderCache(DynamicCache(), names["cross"]),
        )
    held = [[len(store) for store in layer.stores] for layer in names["cross"].producers]
    assert sum(map(sum, held)) == 300 * 6 * 8
    assert max(map(max, held)) > 300 > min(map(min, held))


def test_every_name_it_mentions_exists(document: str) -> None:
    for name in POLICY_NAMES:
        assert f"`{name}`" in document
    methods = re.findall(r"`([a-z_]+)\(\)`", document)
    assert len(methods) >= 5
    assert all(hasattr(audiokv.models.cache.BudgetedCache, name) for name in methods)
