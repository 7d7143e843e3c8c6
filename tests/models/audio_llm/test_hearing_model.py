from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from audiokv.models.audio_llm.hearing_model import AudioSource, HearingModel, SlotModel
from audiokv.models.gemma3n.slot_source import SlotSource
from audiokv.models.gemma3n.speech_model import SpeechModel
from audiokv.models.gemma4.gemma4_speech import Gemma4Speech
from audiokv.models.qwen_omni.qwen_omni_speech import QwenOmniSpeech
from audiokv.models.qwen_omni.window_source import WindowSource
from tests.models.audio_llm.families import Gemma4Family

if TYPE_CHECKING:
    from typing import Any


def members(protocol: Any) -> set[str]:
    """What a protocol asks for, attributes without a value included."""
    named = {name for name in vars(protocol) if not name.startswith("_")}
    return named | set(protocol.__annotations__)


@pytest.mark.parametrize("model", [SpeechModel, Gemma4Speech, QwenOmniSpeech])
def test_every_model_gives_what_the_loop_asks_for(model: type) -> None:
    set_in_init = {"text_config"}
    assert {"text_config", "run", "tokens", "logits"} <= members(HearingModel)
    missing = members(HearingModel) - set_in_init - set(dir(model))
    assert not missing


def test_towers_are_found_on_the_model() -> None:
    model = Gemma4Family().model
    assert members(SlotModel) == {"tower", "mel", "slots"}
    assert all(hasattr(model, name) for name in members(SlotModel))


@pytest.mark.parametrize("source", [SlotSource, WindowSource])
def test_every_source_gives_whole_and_unfinished_slots(source: type) -> None:
    assert members(AudioSource) == {"push", "unfinished"}
    assert not members(AudioSource) - set(dir(source))
