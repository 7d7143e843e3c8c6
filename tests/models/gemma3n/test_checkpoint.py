from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from audiokv.models.gemma3n.checkpoint import best_device, best_dtype, load_checkpoint
from tests.models.gemma3n.conftest import tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU = torch.device("cpu")
SOME = "model.audio_tower.conformer.1.lconv1d.linear_end.weight"


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The tiny model's folder, to be broken."""
    made = tmp_path / "model"
    shutil.copytree(folder, made)
    return made


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_weights_are_those_of_the_folder(folder: Path) -> None:
    loaded = load_checkpoint(folder, torch.float32, CPU)
    expected = tiny_checkpoint().state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    for name, weight in loaded.state_dict().items():
        torch.testing.assert_close(weight, expected[name], atol=0, rtol=0)
    assert not loaded.training
    assert not any(weight.requires_grad for weight in loaded.parameters())
    assert loaded.model.language_model.config._attn_implementation == "audiokv"


def test_constants_that_no_file_holds_are_set(folder: Path) -> None:
    loaded = dict(load_checkpoint(folder, torch.float32, CPU).named_buffers())
    for name, constant in tiny_checkpoint().named_buffers():
        torch.testing.assert_close(loaded[name], constant, msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_are_held_in_the_type_asked_for(folder: Path, dtype: torch.dtype) -> None:
    loaded = load_checkpoint(folder, dtype, CPU)
    assert {weight.dtype for weight in loaded.parameters()} == {dtype}


def test_parts_of_a_sharded_model_are_joined(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint()
    checkpoint.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = load_checkpoint(tmp_path, torch.float32, CPU)
    for name, weight in loaded.state_dict().items():
        torch.testing.assert_close(weight, checkpoint.state_dict()[name], atol=0, rtol=0)


def test_vision_is_never_built(copy: Path) -> None:
    edit_config(copy, lambda c: c.update(vision_config={"architecture": "no_such_net"}))
    edit_tensors(copy, lambda t: t.update({"model.vision_tower.x.weight": torch.ones(3)}))
    loaded = load_checkpoint(copy, torch.float32, CPU)
    assert not any("vision" in name for name, _ in loaded.named_parameters())
    assert "timm" not in sys.modules


def test_a_missing_tensor_is_named(copy: Path) -> None:
    edit_tensors(copy, lambda t: t.pop(SOME))
    with pytest.raises(KeyError, match=r"lconv1d\.linear_end"):
        load_checkpoint(copy, torch.float32, CPU)


def test_a_tensor_of_another_shape_is_named(copy: Path) -> None:
    edit_tensors(copy, lambda t: t.update({SOME: torch.ones(3, 5)}))
    with pytest.raises(ValueError, match=r"lconv1d\.linear_end.*\(3, 5\), not \(24, 24\)"):
        load_checkpoint(copy, torch.float32, CPU)


def test_a_config_without_audio_is_named(copy: Path) -> None:
    edit_config(copy, lambda c: c.pop("audio_config"))
    with pytest.raises(KeyError, match="audio_config"):
        load_checkpoint(copy, torch.float32, CPU)


def test_a_size_that_cannot_be_is_named(copy: Path) -> None:
    edit_config(copy, lambda c: c["text_config"].update(hidden_size="many"))
    with pytest.raises(ValueError, match="hidden_size"):
        load_checkpoint(copy, torch.float32, CPU)


def test_the_device_decides_the_type(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_dtype(CPU) == torch.float32
    assert best_dtype(torch.device("cuda")) == torch.bfloat16
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert best_device().type == "cuda"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert best_device().type == "cpu"
