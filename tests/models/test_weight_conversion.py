from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import WhisperForConditionalGeneration

from audiokv.models.weight_conversion import Conversion
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = ("model.bin", "config.json", "tokenizer.json")


def parts_of(folder: Path) -> dict[str, list[Path]]:
    return {name: [folder / name] for name in FILES}


@pytest.mark.parametrize("dtype_id", [0, 4, 5])
def test_the_converted_model_computes_what_the_original_does(
    dtype_id: int, make_tiny_whisper: Callable[[int], Any], tmp_path: Path
) -> None:
    tiny = make_tiny_whisper(dtype_id)
    source = tiny.save(tmp_path / "source")
    with Conversion("tiny", parts_of(source)) as conversion:
        names = conversion.write(tmp_path)
    assert {"config.json", "generation_config.json", "model.safetensors"} < set(names)
    converted: Any = WhisperForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    converted.train(mode=False)
    features = torch.randn(1, 8, 100)
    tokens = torch.tensor([[81, 5, 9]])
    with torch.no_grad():
        expected = tiny.model(input_features=features, decoder_input_ids=tokens).logits
        found = converted(input_features=features, decoder_input_ids=tokens).logits
    assert torch.equal(found, expected)
    assert converted.generation_config.alignment_heads == [[1, 0], [2, 3]]


def test_parts_are_joined_in_order(tiny_whisper: Any, tmp_path: Path) -> None:
    source = tiny_whisper.save(tmp_path / "source")
    whole = (source / "model.bin").read_bytes()
    (tmp_path / "1").write_bytes(whole[:777])
    (tmp_path / "2").write_bytes(whole[777:])
    with Conversion("tiny", parts_of(source)) as conversion:
        expected = conversion.sha256("model.bin")
    split = parts_of(source) | {"model.bin": [tmp_path / "1", tmp_path / "2"]}
    with Conversion("tiny", split) as conversion:
        assert conversion.sha256("model.bin") == expected


def test_conversion_writes_the_same_bytes_each_time(tiny_whisper: Any, tmp_path: Path) -> None:
    source = tiny_whisper.save(tmp_path / "source")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with Conversion("tiny", parts_of(source)) as conversion:
            names = conversion.write(tmp_path / name)
    for file in names:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_broken_settings_file_is_named(content: str, tiny_whisper: Any, tmp_path: Path) -> None:
    source = tiny_whisper.save(tmp_path / "source")
    (source / "config.json").write_text(content)
    with (
        Conversion("tiny", parts_of(source)) as conversion,
        pytest.raises(WeightsError, match=r"config\.json of tiny"),
    ):
        conversion.write(tmp_path)


def test_an_unreadable_file_is_named_and_the_bar_stops(tiny_whisper: Any, tmp_path: Path) -> None:
    source = tiny_whisper.save(tmp_path / "source")
    (source / "model.bin").unlink()
    (source / "model.bin").mkdir()
    conversion = Conversion("tiny", parts_of(source))
    with pytest.raises(WeightsError, match=r"model\.bin") as caught, conversion:
        pass
    assert caught.value.code == "weights_unreadable"
    assert conversion._progress.live.is_started is False


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(WeightsError, match="nothing-here"),
        Conversion("x", {"a": [tmp_path / "nothing-here"]}),
    ):
        pass
