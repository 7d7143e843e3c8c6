from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from audiokv.models.gemma3n.adapters import merge_adapter
from audiokv.streaming.errors import WeightsError
from tests.models.gemma3n.conftest import tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDS = torch.arange(6, 26)[None]
TARGETS = ["q_proj", "v_proj", "gate_proj", "linear_start"]  # the last only in the audio tower
FILE = "adapter_model.safetensors"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        hidden = model.model.language_model(input_ids=IDS).last_hidden_state
        made: torch.Tensor = model.lm_head(hidden)
    return made


def heard(model: Any) -> torch.Tensor:
    mel = torch.randn(1, 64, 128, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        made: torch.Tensor = model.model.audio_tower(
            mel, torch.zeros(1, 64, dtype=torch.bool)
        ).last_hidden_state
    return made


def save_adapter(folder: Path, **changes: Any) -> Any:
    """Write a random adapter for the tiny model and return peft's own model."""
    torch.manual_seed(4)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, init_lora_weights=False)
    adapted: Any = get_peft_model(tiny_checkpoint(**changes), config)
    adapted.save_pretrained(folder)
    return adapted.eval()


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file(tensors, folder / FILE)


def code_of(folder: Path, model: Any) -> str:
    with pytest.raises(WeightsError) as caught:
        merge_adapter(model, str(folder))
    assert str(folder) in caught.value.message
    assert caught.value.remedy
    return caught.value.code


def test_a_merged_adapter_does_what_pefts_own_model_does(tmp_path: Path) -> None:
    own = save_adapter(tmp_path).base_model.model
    plain = tiny_checkpoint()
    merged = merge_adapter(tiny_checkpoint(), str(tmp_path))
    torch.testing.assert_close(logits(merged), logits(own), atol=1e-4, rtol=0)
    torch.testing.assert_close(heard(merged), heard(own), atol=1e-4, rtol=0)
    assert (logits(merged) - logits(plain)).abs().max() > 0.1
    assert (heard(merged) - heard(plain)).abs().max() > 0.01
    assert merged.state_dict().keys() == plain.state_dict().keys()
    assert not any(weight.requires_grad for weight in merged.parameters())


def test_an_adapters_part_for_vision_is_left_out(tmp_path: Path) -> None:
    own = save_adapter(tmp_path).base_model.model
    name = "base_model.model.model.vision_tower.x.q_proj.lora_A.weight"
    edit(tmp_path, lambda t: t.update({name: torch.ones(4, 3)}))
    merged = merge_adapter(tiny_checkpoint(), str(tmp_path))
    torch.testing.assert_close(logits(merged), logits(own), atol=1e-4, rtol=0)


def test_an_adapter_for_another_size_is_refused(tmp_path: Path) -> None:
    save_adapter(tmp_path, intermediate_size=48)
    assert code_of(tmp_path, tiny_checkpoint()) == "adapter_misfit"


def test_an_adapter_for_other_layers_is_refused(tmp_path: Path) -> None:
    save_adapter(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(
        json.dumps(config | {"target_modules": ["query_key_value"]})
    )
    assert code_of(tmp_path, tiny_checkpoint()) == "adapter_misfit"


def test_an_adapter_with_a_part_that_has_no_place_is_refused(tmp_path: Path) -> None:
    save_adapter(tmp_path)
    edit(tmp_path, lambda t: t.update({"base_model.model.other.lora_A.weight": torch.ones(4, 3)}))
    with pytest.raises(WeightsError, match=r"no place for .*other\.lora_A") as caught:
        merge_adapter(tiny_checkpoint(), str(tmp_path))
    assert caught.value.code == "adapter_misfit"


@pytest.mark.parametrize("file", ["adapter_config.json", FILE])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    save_adapter(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(WeightsError, match=file) as caught:
        merge_adapter(tiny_checkpoint(), str(tmp_path))
    assert caught.value.code == "adapter_missing"


@pytest.mark.parametrize("file", ["adapter_config.json", FILE])
def test_a_damaged_file_is_refused(tmp_path: Path, file: str) -> None:
    save_adapter(tmp_path)
    (tmp_path / file).write_bytes(b"{nothing")
    assert code_of(tmp_path, tiny_checkpoint()) == "adapter_corrupt"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(WeightsError, match="no/such/adapter") as caught:
        merge_adapter(tiny_checkpoint(), "no/such/adapter")
    assert caught.value.code == "adapter_missing"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert code_of(tmp_path, tiny_checkpoint()) == "peft_missing"
