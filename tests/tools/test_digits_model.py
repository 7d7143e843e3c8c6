from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Gemma3nForCausalLM

from tools.digits_model import (
    AUDIO_TOKEN,
    BOA,
    BOS,
    DIGIT_0,
    EOA,
    DigitsModel,
    digits_config,
    fresh_model,
)


@pytest.fixture(scope="module")
def model() -> DigitsModel:
    torch.manual_seed(0)
    return DigitsModel(digits_config()).eval()


def test_the_structure_is_the_real_ones_at_few_parameters(model: DigitsModel) -> None:
    text = model.config.text_config
    producers = zip(text.layer_types, text.kv_sharing_modes, strict=True)
    kinds = [layer_type for layer_type, mode in producers if mode != "reuse"]
    assert kinds.count("full_attention") == kinds.count("sliding_attention") == 2
    assert text.kv_sharing_modes.count("reuse") == text.num_kv_shared_layers == 2
    assert model.config.audio_config.conf_reduction_factor == 4
    assert sum(one.numel() for one in model.parameters()) < 5_000_000


def test_sixteen_frames_make_a_slot(model: DigitsModel) -> None:
    with torch.no_grad():
        mel = torch.randn(2, 80, 128)
        assert model.hear(mel).shape == (2, 5, model.config.text_config.hidden_size)
        assert model.encode(mel).shape == (2, 5, model.config.audio_config.hidden_size)


def test_hearing_does_not_look_ahead(model: DigitsModel) -> None:
    mel = torch.randn(1, 160, 128)
    with torch.no_grad():
        whole, part = model.hear(mel), model.hear(mel[:, :96])
    torch.testing.assert_close(part[:, :5], whole[:, :5], atol=1e-4, rtol=1e-4)


def test_audio_ids_have_a_table_of_their_own(model: DigitsModel) -> None:
    with torch.no_grad():
        embedded = model.embed(torch.tensor([[BOS, EOA, DIGIT_0]]))[0]
        text = model.language_model.embed_tokens(torch.tensor([BOS, DIGIT_0]))
        audio = model.embed_audio(input_ids=torch.tensor([[EOA]]))[0, 0]
    torch.testing.assert_close(embedded[[0, 2]], text)
    torch.testing.assert_close(embedded[1], audio)


def test_logits_are_those_of_transformers_own_language_model(model: DigitsModel) -> None:
    whole: Any = Gemma3nForCausalLM(model.config.text_config)
    whole.eval()
    whole.model.load_state_dict(model.language_model.state_dict())
    ids = torch.tensor([[BOS, BOA, AUDIO_TOKEN, AUDIO_TOKEN, EOA, DIGIT_0 + 3]])
    with torch.no_grad():
        embeddings = model.embed(ids)
        ours = model.logits(ids, embeddings)
        per_layer = whole.model.get_per_layer_inputs(ids)
        theirs = whole(inputs_embeds=embeddings, per_layer_inputs=per_layer).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_the_token_at_a_position_chooses_its_per_layer_input() -> None:
    torch.manual_seed(0)
    model = fresh_model(digits_config()).eval()
    ids = torch.tensor([[BOS, DIGIT_0]])
    with torch.no_grad():
        for layer in model.language_model.layers:
            layer.altup.correct_output_scale.fill_(1.0)  # zero at first: then they do nothing
        embeddings = model.embed(ids)
        one = model.logits(ids, embeddings)
        other = model.logits(torch.tensor([[BOS, DIGIT_0 + 1]]), embeddings)
    torch.testing.assert_close(one[:, 0], other[:, 0])
    assert not torch.allclose(one[:, 1], other[:, 1])


def test_a_fresh_model_lets_the_sound_through() -> None:
    torch.manual_seed(0)
    model = fresh_model(digits_config()).eval()
    for weights, n_inputs in (
        (model.language_model.layers[0].self_attn.q_proj.weight, 128),
        (model.audio_tower.subsample_conv_projection.conv_0.conv.weight, 9),
        (model.language_model.embed_tokens.weight, 128),
    ):
        assert float(weights.detach().std()) * n_inputs**0.5 == pytest.approx(1.0, abs=0.25)
