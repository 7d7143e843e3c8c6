from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Gemma4Config, Gemma4ForConditionalGeneration

from audiokv.models.cache import ATTENTION, BudgetedCache
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.gemma4.gemma4_speech import Gemma4Speech
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.marker import UNKNOWN_TALKER
from tests.models.audio_llm.families import Gemma4Family
from tests.models.gemma3n.conftest import sound
from tests.models.gemma4.conftest import SPECIAL, TEXT, tiny_gemma4


@torch.no_grad()
def test_logits_are_those_of_the_class_on_the_whole_clip() -> None:
    family, clip, text = Gemma4Family(), sound(20_000, 3), [7, 9, 20]
    source = family.source(0)
    slots = [inputs for inputs, _ in source.push(clip, UNKNOWN_TALKER)]
    model = family.model
    inputs = Inputs.joined(
        [model.tokens([2, 3]), *slots, *source.unfinished(), model.tokens([56, *text])]
    )
    cache = BudgetedCache(model.text_config, 4096, "full", slot_ms=40)
    found = model.logits(model.run(inputs, cache))[-len(text) - 1 :]
    expected = family.class_logits([clip], [text])
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert float(expected.std()) > 0.1


@torch.no_grad()
def test_a_model_without_per_layer_embeddings_runs_too() -> None:
    # The class cannot share keys without them.
    own: Any = tiny_gemma4(hidden_size_per_layer_input=0, num_kv_shared_layers=0)
    expected = own(input_ids=torch.tensor([[2, 9, 11]])).logits[0]
    speech = Gemma4Speech(own)
    cache = BudgetedCache(speech.text_config, 64, "full", slot_ms=40)
    found = speech.logits(speech.run(speech.tokens([2, 9, 11]), cache))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_logits_are_capped_as_the_config_says() -> None:
    own: Any = tiny_gemma4(final_logit_softcapping=0.5)
    speech = Gemma4Speech(own)
    hidden = torch.randn((3, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float(speech.logits(hidden).abs().max()) <= 0.5


def test_layers_and_attention_come_from_the_config() -> None:
    speech = Gemma4Speech(tiny_gemma4())
    assert speech.full_attention_layers == [1, 3, 5]
    assert speech.text_config._attn_implementation == ATTENTION
    assert speech.device == torch.device("cpu")
    assert speech.dtype == torch.float32


def test_a_model_without_an_audio_tower_is_refused() -> None:
    config = Gemma4Config(audio_config=None, text_config=TEXT, vision_config=None, **SPECIAL)
    deaf: Any = Gemma4ForConditionalGeneration(config)
    with pytest.raises(ConfigError, match="no audio tower") as caught:
        Gemma4Speech(deaf)
    assert caught.value.code == "audio_tower_missing"
