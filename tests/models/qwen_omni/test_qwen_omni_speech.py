from __future__ import annotations

import torch

from audiokv.models.cache import ATTENTION, BudgetedCache
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.qwen_omni.qwen_omni_speech import QwenOmniSpeech
from audiokv.streaming.policy.marker import UNKNOWN_TALKER
from tests.models.audio_llm.families import QwenFamily
from tests.models.gemma3n.conftest import sound
from tests.models.qwen_omni.conftest import tiny_thinker


@torch.no_grad()
def test_logits_are_those_of_the_class_on_the_whole_clip() -> None:
    family, clip, text = QwenFamily(), sound(48_000, 3), [7, 9, 20]
    source, model, frame = family.source(0), family.model, family.frame
    slots = [inputs for inputs, _ in source.push(clip, UNKNOWN_TALKER)]
    before = model.tokens([*frame.opening, *frame.before_audio])
    after = model.tokens([*frame.after_audio, *text])
    inputs = Inputs.joined([before, *slots, *source.unfinished(), after])
    cache = BudgetedCache(model.text_config, 4096, "full", slot_ms=80)
    found = model.logits(model.run(inputs, cache))[-len(text) - 1 :]
    expected = family.class_logits([clip], [text])
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert float(expected.std()) > 0.1


def test_layers_and_attention_come_from_the_config() -> None:
    speech = QwenOmniSpeech(tiny_thinker())
    assert speech.full_attention_layers == [0, 1]
    assert speech.text_config._attn_implementation == ATTENTION
    assert speech.device == torch.device("cpu")
    assert speech.dtype == torch.float32


def test_slots_take_the_type_of_the_text_model() -> None:
    speech = QwenOmniSpeech(tiny_thinker().to(torch.bfloat16))
    slots = speech.slots(torch.ones((1, 3, 32), dtype=torch.float32))
    assert slots.embeds.dtype == torch.bfloat16
    assert len(slots[1:]) == 2
    assert len(Inputs.joined([slots, speech.tokens([4])])) == 4
