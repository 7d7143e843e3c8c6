from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AttentionInterface,
    DynamicCache,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from audiokv.models.cache import ATTENTION, SlotCache
from audiokv.models.cache.attention import StepMask, budgeted_attention, step_mask
from audiokv.streaming.errors import ConfigError


def llama(attention: str) -> Any:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model: Any = LlamaForCausalLM(config)
    model.eval()
    model.set_attn_implementation(attention)
    return model


def test_registers_under_its_own_name_only() -> None:
    interface: Any = AttentionInterface
    known = interface()
    assert known[ATTENTION] is budgeted_attention
    assert known["sdpa"] is not budgeted_attention


@torch.no_grad()
def test_keys_of_other_caches_are_answered_as_by_sdpa() -> None:
    tokens = torch.randint(0, 64, (2, 9))
    padding = torch.ones(2, 9, dtype=torch.long)
    padding[0, :3] = 0
    logits = []
    for attention in (ATTENTION, "sdpa"):
        model, cache = llama(attention), DynamicCache()
        first = model(tokens[:, :6], attention_mask=padding[:, :6], cache=cache).logits
        logits.append((first, model(tokens[:, 6:], attention_mask=padding, cache=cache).logits))
    assert torch.equal(logits[0][0], logits[1][0])
    assert torch.equal(logits[0][1], logits[1][1])


@torch.no_grad()
def test_padded_rows_are_as_if_alone() -> None:
    model = llama(ATTENTION)
    tokens = torch.randint(0, 64, (2, 16))
    padding = torch.ones(2, 16, dtype=torch.long)
    padding[0, :4] = 0
    positions = (padding.cumsum(dim=1) - 1).clamp_min(0)

    def run(rows: torch.Tensor, kept: list[int], start: int) -> torch.Tensor:
        cache = SlotCache(model.config)
        out = []
        for begin, end in ((start, 10), (10, 13), (13, 14), (14, 16)):
            out.append(
                model(
                    tokens[rows, begin:end],
                    attention_mask=padding[rows, start:end],
                    position_ids=positions[rows, begin:end],
                    cache=cache,
                ).logits
            )
            if end == 10:
                cache.keep([slot - start for slot in kept])
        return torch.cat(out[1:], dim=1)

    together = run(torch.tensor([0, 1]), [1, 5, 6, 9], 0)
    assert torch.allclose(together[:1], run(torch.tensor([0]), [5, 6, 9], 4), atol=1e-6)
    assert torch.allclose(together[1:], run(torch.tensor([1]), [1, 5, 6, 9], 0), atol=1e-6)


@torch.no_grad()
def test_masks_that_positions_cannot_express_are_refused() -> None:
    model = llama(ATTENTION)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    with pytest.raises(ConfigError) as error:
        model(
            torch.zeros(1, 3, dtype=torch.long), attention_mask=mask, cache=SlotCache(model.config)
        )
    assert error.value.code == "mask_unsupported"


def test_a_mask_with_something_over_causality_is_remembered_as_such() -> None:
    def mask(**more: Any) -> Any:
        return step_mask(batch_size=1, q_length=3, kv_length=5, q_offset=2, **more)

    assert not mask().has_overlay
    assert mask(allow_is_causal_skip=False).has_overlay


def test_padding_survives_slicing() -> None:
    padding = torch.tensor([[0, 1, 1]])
    mask = step_mask(batch_size=1, q_length=3, kv_length=3, attention_mask=padding)
    assert isinstance(mask, StepMask)
    sliced = mask[:, :, -1:]
    assert sliced.shape == (1, 1, 1, 3)
    assert sliced.padding is not None
    assert sliced.padding.tolist() == [[False, True, True]]


def test_a_padding_mask_without_padding_is_no_mask() -> None:
    whole = torch.ones(1, 3, dtype=torch.long)
    assert step_mask(batch_size=1, q_length=3, kv_length=3, attention_mask=whole) is None


@torch.no_grad()
def test_capped_logits_are_as_in_the_models_own_attention() -> None:
    torch.manual_seed(3)
    config = Gemma2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_logit_softcapping=0.5,
        sliding_window=6,
    )
    model: Any = Gemma2ForCausalLM(config)
    model.eval()
    tokens = torch.randint(0, 64, (1, 16))
    logits = []
    for attention in ("eager", ATTENTION):
        model.set_attn_implementation(attention)
        cache = SlotCache(model.config) if attention == ATTENTION else DynamicCache(config=config)
        logits.append(
            [
                model(part, cache=cache).logits
                for part in torch.tensor_split(tokens, (8, 12, 13), dim=1)
            ]
        )
    for eager, ours in zip(*logits, strict=True):
        assert torch.allclose(eager, ours, atol=1e-5)
