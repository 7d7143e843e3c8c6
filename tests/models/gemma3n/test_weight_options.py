"""How weights are to be loaded, from the loader to the model."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

from audiokv.models.base import StreamOptions, WeightOptions
from audiokv.models.gemma3n.compressed_weights import held_bytes
from audiokv.models.load import load_recognizer
from audiokv.streaming.errors import WeightsError
from tests.models.gemma3n.conftest import sound, tiny_checkpoint, write_tokenizer
from tests.models.gemma3n.test_adapters import save_adapter
from tests.models.gemma3n.test_compressed_weights import SIZES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model wide enough for blocks of 64."""
    made = tmp_path_factory.mktemp("wide")
    tiny_checkpoint(**SIZES).save_pretrained(made)
    write_tokenizer(made)
    return made


def loaded(folder: Path, **weights: Any) -> Any:
    return load_recognizer(str(folder), None, WeightOptions(**weights))


def heard(recognizer: Any) -> Any:
    stream = recognizer.open_stream(StreamOptions("en"))
    stream.open(0)
    stream.append(sound(16_000))
    return stream


def said(recognizer: Any) -> tuple[str, ...]:
    return tuple(word.text for word in recognizer.decode([heard(recognizer)])[0].words)


def test_the_type_asked_for_comes_before_the_folders(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "model"
    shutil.copytree(folder, made)
    (made / "audiokv.json").write_text(json.dumps({"dtype": "float16"}))
    assert loaded(made)._model.speech.dtype == torch.float16
    assert loaded(made, dtype="bfloat16")._model.speech.dtype == torch.bfloat16
    assert loaded(folder)._model.speech.dtype == torch.float32


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_stream_runs_on_smaller_weights(wide: Path, weights: str) -> None:
    recognizer = loaded(wide, weights=weights)
    layers = recognizer._model.speech.language_model.layers
    full = loaded(wide)._model.speech.language_model.layers
    assert held_bytes(layers) < 0.5 * held_bytes(full)
    stream = heard(recognizer)
    recognizer.decode([stream])
    assert stream._prefix.held == 2 + 16_000 // 2_560  # <bos>, <boa> and the whole slots


def test_an_adapter_changes_what_is_said(folder: Path, tmp_path: Path) -> None:
    save_adapter(tmp_path)
    assert said(loaded(folder, adapter=str(tmp_path))) != said(loaded(folder))
    with pytest.raises(WeightsError, match="no-such-adapter"):
        loaded(folder, adapter=str(tmp_path / "no-such-adapter"))


def test_the_folder_may_ask_for_norms_that_begin_anew(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "model"
    shutil.copytree(folder, made)
    (made / "audiokv.json").write_text(json.dumps({"resets_norm": True}))
    for model, resets in ((made, True), (folder, False)):
        stream = loaded(model).open_stream(StreamOptions("en"))
        stream.open(0)
        stream.append(sound(16_000))
        stream.decode()
        stream.begin_segment(1_000)
        assert (stream._source._tower.convs[0].sums.count == 0) == resets
