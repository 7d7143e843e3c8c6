from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from transformers import DynamicCache

from audiokv.models.gemma3n.mel import MelFrontEnd
from audiokv.models.gemma3n.speech_model import Inputs
from tests.models.gemma3n.conftest import sound
from tests.models.gemma3n.reference import BOA, BOS, EOA, Reference

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from audiokv.models.gemma3n.speech_model import SpeechModel


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@torch.no_grad()
def encode(speech: SpeechModel, samples: np.ndarray, tmp_path: Path) -> Inputs:
    mel = speech.mel(torch.from_numpy(MelFrontEnd.from_folder(tmp_path).log_mel(samples)))
    slots, state = speech.tower.advance(speech.tower.start(), mel)
    return speech.slots(torch.cat((slots, speech.tower.finish(state)), dim=1))


@torch.no_grad()
@pytest.mark.parametrize("n_padding", [0, 5])
def test_logits_are_those_of_transformers(
    speech: SpeechModel, reference: Reference, tmp_path: Path, n_padding: int
) -> None:
    samples, text = sound(20_000), [7, 30, 12, 47]
    parts = [speech.tokens([BOS, BOA]), encode(speech, samples, tmp_path)]
    if n_padding:
        parts.append(speech.padding(n_padding))
    inputs = Inputs.joined([*parts, speech.tokens([EOA, *text])])
    hidden = speech.run(inputs, DynamicCache(config=speech.text_config))
    got = speech.logits(hidden[-len(text) - 1 :])
    expected = reference.logits(samples, text, n_padding)
    assert expected.std() > 0.5
    torch.testing.assert_close(got, expected, atol=1e-3, rtol=0)


@torch.no_grad()
def test_what_is_said_about_identity_counts(
    speech: SpeechModel, reference: Reference, tmp_path: Path
) -> None:
    samples = sound(20_000)
    slots = encode(speech, samples, tmp_path)
    as_words = Inputs(slots.embeds, speech.tokens([9] * len(slots)).per_layer)
    expected = reference.logits(samples, [7])
    differences = []
    for audio in (slots, as_words):
        inputs = Inputs.joined([speech.tokens([BOS, BOA]), audio, speech.tokens([EOA, 7])])
        hidden = speech.run(inputs, DynamicCache(config=speech.text_config))
        differences.append(float((speech.logits(hidden[-2:]) - expected).abs().max()))
    assert 20 * differences[0] < 0.02 < differences[1]


def test_tokens_of_the_audio_vocabulary_have_an_embedder_of_their_own(
    speech: SpeechModel,
) -> None:
    with torch.no_grad():
        both = speech.tokens([EOA, 7])
        table = speech.language_model.embed_tokens(torch.tensor([[EOA, 7]]))
    assert not torch.equal(both.embeds[0, 0], table[0, 0])
    assert torch.equal(both.embeds[0, 1], table[0, 1])


def test_inputs_are_cut_and_joined(speech: SpeechModel) -> None:
    with torch.no_grad():
        whole = speech.tokens([7, 8, 9])
    joined = Inputs.joined([whole[:1], whole[1:]])
    assert len(joined) == 3
    assert torch.equal(joined.embeds, whole.embeds)
    assert torch.equal(joined.per_layer, whole.per_layer)


def test_layers_are_read_from_the_config(speech: SpeechModel) -> None:
    assert speech.full_attention_layers == [1, 3, 5]
    assert speech.dtype == torch.float32
    assert speech.device.type == "cpu"
