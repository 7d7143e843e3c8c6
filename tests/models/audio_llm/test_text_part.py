from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from audiokv.models.audio_llm.text_part import TextPart, without_per_layer
from audiokv.models.cache import ATTENTION, BudgetedCache
from audiokv.models.gemma3n.speech_model import Inputs
from tests.models.cache.conftest import SMALL
from tests.models.gemma4.conftest import tiny_gemma4


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.manual_seed(1)
    made: Any = LlamaForCausalLM(LlamaConfig(**SMALL, num_hidden_layers=3))
    return made.eval()


@torch.no_grad()
def test_a_model_without_layer_types_attends_to_everything_everywhere(llama: Any) -> None:
    expected = llama(torch.tensor([[4, 5, 6]])).logits[0]
    part = TextPart(llama.model, llama.lm_head)
    assert part.full_attention_layers == [0, 1, 2]
    assert part.text_config._attn_implementation == ATTENTION
    embeds = llama.model.embed_tokens(torch.tensor([[4, 5, 6]]))
    cache = BudgetedCache(part.text_config, 32, "full")
    found = part.logits(part.run(Inputs(embeds, without_per_layer(embeds)), cache))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert cache.seen == 3


def test_layer_types_and_cap_come_from_the_config() -> None:
    own = tiny_gemma4(final_logit_softcapping=0.25)
    part = TextPart(own.model.language_model, own.lm_head)
    assert part.full_attention_layers == [1, 3, 5]
    hidden = 50 * torch.ones((2, 32))
    assert float(part.logits(hidden).detach().abs().max()) <= 0.25


def test_logits_are_float32_whatever_the_weights_are() -> None:
    own = tiny_gemma4().to(torch.bfloat16)
    part = TextPart(own.model.language_model, own.lm_head)
    assert (part.dtype, part.device) == (torch.bfloat16, torch.device("cpu"))
    assert part.logits(torch.ones((1, 32), dtype=torch.bfloat16)).dtype == torch.float32
