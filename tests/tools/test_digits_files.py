from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, Gemma3nAudioFeatureExtractor, GenerationConfig

from audiokv.models.gemma3n.model_settings import ModelSettings
from tools.digits_files import digits_tokenizer, read_checkpoint, write_checkpoint, write_settings
from tools.digits_model import BOA, BOS, EOA, EOS, DigitsModel, digits_config
from tools.digits_rows import RowPlan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DigitsModel]:
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("checkpoint") / "digits"
    model = DigitsModel(digits_config())
    extractor = Gemma3nAudioFeatureExtractor(per_bin_mean=[-4.0] * 128, per_bin_stddev=[2.0] * 128)
    write_checkpoint(folder, model, extractor)
    return folder, model


def test_a_checkpoint_comes_back_as_it_was_to_half_precision(
    written: tuple[Path, DigitsModel],
) -> None:
    folder, model = written
    again, extractor = read_checkpoint(folder)
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, atol=1e-3, rtol=1e-3)
    assert extractor.per_bin_mean.ravel()[5] == -4.0
    assert extractor.per_bin_stddev.ravel()[5] == 2.0


def test_weights_are_half_precision_under_the_names_of_the_full_model(
    written: tuple[Path, DigitsModel],
) -> None:
    weights = load_file(written[0] / "model.safetensors")
    assert {one.dtype for one in weights.values()} == {torch.float16}
    parts = {name.split(".")[1] for name in weights}
    assert parts == {"audio_tower", "embed_audio", "language_model"}
    assert all(name.startswith("model.") for name in weights)
    assert (written[0] / "model.safetensors").stat().st_size < 12 * 2**20


def test_configuration_and_generation_settings_load_by_themselves(
    written: tuple[Path, DigitsModel],
) -> None:
    config = AutoConfig.from_pretrained(written[0])
    for part in ("text_config", "audio_config"):
        assert getattr(config, part).to_dict() == getattr(digits_config(), part).to_dict()
    assert (config.boa_token_id, config.eoa_token_id) == (BOA, EOA)
    settings = GenerationConfig.from_pretrained(written[0])
    assert (settings.bos_token_id, settings.eos_token_id) == (BOS, EOS)


def test_one_token_a_digit_word_and_back(written: tuple[Path, DigitsModel]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(written[0])
    text = "seven one zero nine"
    assert tokenizer(text)["input_ids"] == [11, 5, 4, 13]
    assert tokenizer.decode([11, 5, EOS], skip_special_tokens=True) == "seven one"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_special_tokens_have_their_ids() -> None:
    tokenizer = digits_tokenizer()
    names = ["<pad>", "<eos>", "<bos>", "<boa>", "<eoa>", "<audio_soft_token>", "eleven"]
    assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3, 24, 25, 14]
    assert len(tokenizer) == digits_config().text_config.vocab_size
    assert not str(tokenizer.decode(list(range(14, 32)), skip_special_tokens=True)).strip()


def test_the_live_recognisers_settings_are_written(tmp_path: Path) -> None:
    write_settings(tmp_path, [(3, 1), (5, 0)])
    settings = ModelSettings.from_folder(tmp_path)
    assert settings.prompt == "plain"
    assert settings.languages == frozenset({"en"})
    assert settings.alignment_heads == ((3, 1), (5, 0))
    assert settings.max_positions == RowPlan().max_gap  # it was never trained on larger ones
