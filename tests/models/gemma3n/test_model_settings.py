from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audiokv.models.gemma3n.model_settings import ModelSettings
from audiokv.models.gemma3n.prefix import PrefixOptions
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError

DIGITS = Path(__file__).parent.parent / "gemma3n-digits"


def read(folder: Path, contents: str) -> ModelSettings:
    (folder / "audiokv.json").write_text(contents, "utf-8")
    return ModelSettings.from_folder(folder)


def refusal(folder: Path, contents: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(folder, contents)
    assert caught.value.code == "bad_model_settings"
    assert str(folder / "audiokv.json") in caught.value.message
    assert caught.value.remedy
    return caught.value


def test_settings_are_read_from_the_folder(tmp_path: Path) -> None:
    assert ModelSettings.from_folder(tmp_path) == ModelSettings()
    assert read(tmp_path, "{}") == ModelSettings()
    settings = {
        "prompt": "plain",
        "languages": ["en"],
        "alignment_heads": [[3, 1], [5, 0]],
        "pad_to_slots": 188,
        "dtype": "bfloat16",
        "max_positions": 4096,
        "resets_norm": True,
    }
    assert read(tmp_path, json.dumps(settings)) == ModelSettings(
        "plain", frozenset({"en"}), ((3, 1), (5, 0)), 188, "bfloat16", 4096, resets_norm=True
    )


def test_null_and_nothing_are_the_defaults(tmp_path: Path) -> None:
    nulls = dict.fromkeys(["prompt", "languages", "dtype", "max_positions"])
    nothing = {"alignment_heads": [], "pad_to_slots": 0, "resets_norm": False}
    assert read(tmp_path, json.dumps(nulls | nothing)) == ModelSettings()


def test_the_digit_models_settings_are_valid() -> None:
    settings = ModelSettings.from_folder(DIGITS)
    assert settings.prompt == "plain"
    assert settings.languages == frozenset({"en"})
    assert settings.alignment_heads


@pytest.mark.parametrize("contents", ["[]", "[1]", '[["prompt", "plain"]]', '"x"', "5", "null"])
def test_a_file_that_holds_no_object_is_refused(tmp_path: Path, contents: str) -> None:
    assert "holds no JSON object" in refusal(tmp_path, contents).message


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    assert "property name" in refusal(tmp_path, "{").message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "audiokv.json").write_bytes(b'{"prompt": "\xff"}')
    with pytest.raises(ConfigError, match="utf-8"):
        ModelSettings.from_folder(tmp_path)
    (tmp_path / "audiokv.json").unlink()
    (tmp_path / "audiokv.json").mkdir()
    with pytest.raises(ConfigError, match="directory"):
        ModelSettings.from_folder(tmp_path)


def test_an_unknown_key_is_refused_with_those_there_are(tmp_path: Path) -> None:
    error = refusal(tmp_path, '{"promt": "chat"}')
    assert "'promt'" in error.message
    assert "prompt, languages, alignment_heads" in error.remedy


WRONG: dict[str, list[Any]] = {
    "prompt": ["poem", "Plain", "", ["plain"], [], {}, 1, True],
    "languages": ["en", "", [], ["EN"], ["english"], ["e1"], ["en\n"], [1], [None], {"en": 1}, 5],
    "alignment_heads": [
        None,
        5,
        "30",
        {"3": 0},
        [1],
        ["30"],
        [[3]],
        [[3, 0, 1]],
        [[3.7, "0"]],
        [[3, 0.0]],
        [[3, -1]],
        [[-1, 0]],
        [[True, False]],
        [[3, 0], [5]],
    ],
    "pad_to_slots": ["188", None, -5, 1.5, True, []],
    "dtype": ["int8", "", 1, [], {}, ["float32"]],
    "max_positions": ["4096", -1, 0, 100, 1000.5, True, []],
    "resets_norm": ["no", 0, 1, None, []],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_a_value_that_means_nothing_is_refused(tmp_path: Path, key: str, value: object) -> None:
    error = refusal(tmp_path, json.dumps({"resets_norm": True, key: value}))
    assert f"{key} is {json.dumps(value)}" in error.message
    assert error.remedy.startswith(f"Make {key} ")


def test_positions_have_room_for_what_a_step_appends(tmp_path: Path) -> None:
    n_tail = PrefixOptions(CacheOptions(), 160).tail_slots
    assert "above 640" in refusal(tmp_path, json.dumps({"max_positions": n_tail})).remedy
    assert read(tmp_path, json.dumps({"max_positions": n_tail + 1})).max_positions == n_tail + 1


def test_heads_have_to_be_of_a_full_attention_layer(tmp_path: Path) -> None:
    for heads in ((), ((1, 0), (3, 3))):
        ModelSettings(alignment_heads=heads).check_heads(tmp_path, [1, 3], 4)
    for layer, head in ((0, 0), (2, 1), (99, 0), (3, 4), (1, 99)):
        settings = ModelSettings(alignment_heads=((1, 0), (layer, head)))
        with pytest.raises(ConfigError) as caught:
            settings.check_heads(tmp_path, [1, 3], 4)
        assert caught.value.code == "bad_model_settings"
        assert str(tmp_path / "audiokv.json") in caught.value.message
        assert f"alignment_heads has [{layer}, {head}]" in caught.value.message
        assert "heads 0 to 3 of the full-attention layers [1, 3]" in caught.value.remedy
