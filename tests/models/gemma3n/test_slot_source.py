from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma3n.mel import MelFrontEnd
from audiokv.models.gemma3n.slot_source import SlotSource, slot_length_ms
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.streaming.policy.marker import Talker
from tests.models.gemma3n.conftest import sound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from audiokv.models.gemma3n.speech_model import SpeechModel

TALKER = Talker("left", "de")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def front_end(tmp_path_factory: pytest.TempPathFactory) -> MelFrontEnd:
    nowhere: Path = tmp_path_factory.mktemp("nowhere")
    return MelFrontEnd.from_folder(nowhere)


def at_once(speech: SpeechModel, front_end: MelFrontEnd, samples: np.ndarray) -> torch.Tensor:
    mel = speech.mel(torch.from_numpy(front_end.log_mel(samples)))
    slots, state = speech.tower.advance(speech.tower.start(), mel)
    return speech.slots(torch.cat((slots, speech.tower.finish(state)), dim=1)).embeds


@given(st.lists(st.integers(0, 6_000), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
def test_whole_and_unfinished_slots_are_those_of_the_clip(
    speech: SpeechModel, front_end: MelFrontEnd, sizes: list[int]
) -> None:
    samples = sound(sum(sizes) + 600)
    source = SlotSource(speech, front_end, 500)
    marked = []
    for part in np.split(samples, np.cumsum(sizes)):
        marked += source.push(part, TALKER)
    assert len(marked) == len(samples) // 2_560
    slots = Inputs.joined([*(slot for slot, _ in marked), *source.unfinished()])
    torch.testing.assert_close(slots.embeds, at_once(speech, front_end, samples), atol=1e-4, rtol=0)
    starts_ms = [mark.start_ms for _, mark in marked]
    assert starts_ms == list(range(500, 500 + 160 * len(marked), 160))
    assert {(mark.speaker, mark.language) for _, mark in marked} <= {("left", "de")}


def test_loud_slots_are_voiced(speech: SpeechModel, front_end: MelFrontEnd) -> None:
    source = SlotSource(speech, front_end, 0)
    quiet = np.zeros(2_560, np.float32)
    marked = source.push(np.concatenate([quiet, sound(2_560), quiet]), TALKER)
    assert [mark.is_voice for _, mark in marked] == [False, True, False]


def test_the_norm_begins_anew(speech: SpeechModel, front_end: MelFrontEnd) -> None:
    slots = []
    for forgets in (False, True):
        source = SlotSource(speech, front_end, 0)
        source.push(sound(16_000, gain=9), TALKER)
        if forgets:
            source.forget_level()
        slots.append(source.push(sound(16_000, 1, 0.05), TALKER)[-1][0].embeds)
    assert not torch.allclose(slots[0], slots[1], atol=1e-3)


def test_a_slot_is_160_ms(speech: SpeechModel, tmp_path: Path) -> None:
    front_end = MelFrontEnd.from_folder(tmp_path)
    assert slot_length_ms(speech, front_end) == 160
    front_end.hop_samples = 161
    with pytest.raises(ValueError, match="2576 samples"):
        slot_length_ms(speech, front_end)
