from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from audiokv.models.base import StreamOptions, WeightOptions
from audiokv.models.load import (
    KERNEL_CACHE_VARIABLES,
    bound_kernel_caches,
    inference_threads,
    load_recognizer,
)
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError, WeightsError
from tests.models.gemma3n.conftest import tiny_checkpoint, write_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.models.conftest import TinyWhisper


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    n_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def folder(tiny_whisper: TinyWhisper, tmp_path: Path) -> Path:
    """A tiny model as ``save_pretrained`` leaves it, with a tokenizer."""
    folder = tmp_path / "tiny model"
    tiny_whisper.model.save_pretrained(folder)
    vocabulary = {chr(0x100 + i): i for i in range(80)} | {"Ġ": 32}
    tokenizer = {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "added_tokens": [
            {
                "id": token["id"],
                "content": token["content"],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in tiny_whisper.tokenizer["added_tokens"]
        ],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    return folder


def refused(folder: Path) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        load_recognizer(str(folder))
    return caught.value


def test_a_whisper_folder_becomes_a_recogniser(folder: Path) -> None:
    recognizer = load_recognizer(str(folder))
    assert recognizer.info.name == str(folder)
    assert recognizer.info.aligns
    stream = recognizer.open_stream(StreamOptions("en"))
    stream.open(0)
    stream.append(np.zeros(3200, dtype=np.float32))
    (hypothesis,) = recognizer.decode([stream])
    assert hypothesis.language == "en"


def test_the_bound_of_the_cache_reaches_the_streams(folder: Path) -> None:
    for cache in (CacheOptions(12, "fifo"), None):
        stream = load_recognizer(str(folder), cache).open_stream(StreamOptions("en"))
        counters = stream.cache_counters()
        seen = counters and CacheOptions(counters.budget_slots, counters.policy)
        assert seen == cache


def test_a_pass_leaves_cores_to_the_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    load_recognizer(str(folder))
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("n_cores", "expected"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 32)])
def test_half_the_cores_are_used(n_cores: int, expected: int) -> None:
    assert inference_threads(n_cores) == expected


def test_a_gemma3n_folder_becomes_a_recogniser(tmp_path: Path) -> None:
    tiny_checkpoint().save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    recognizer = load_recognizer(str(tmp_path), CacheOptions(30, "fifo"))
    assert (recognizer.info.name, recognizer.info.slot_ms) == (str(tmp_path), 160)
    stream = recognizer.open_stream(StreamOptions("en"))
    stream.open(0)
    stream.append(np.zeros(3200, dtype=np.float32))
    recognizer.decode([stream])
    counters = stream.cache_counters()
    assert counters is not None
    assert (counters.budget_slots, counters.policy) == (30, "fifo")


def test_a_broken_gemma3n_folder_is_named(tmp_path: Path) -> None:
    tiny_checkpoint().save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("nothing")
    error = refused(tmp_path)
    assert error.code == "weights_corrupt"
    assert "tokenizer.json" in error.message


@pytest.mark.parametrize("kind", ["wav2vec2", None])
def test_another_kind_of_model_is_refused(folder: Path, kind: str | None) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": kind}))
    error = refused(folder)
    assert error.code == "unsupported_model"
    assert str(folder) in error.message
    assert repr(kind) in error.message
    assert "whisper-base" in error.remedy


@pytest.mark.parametrize(
    "weights", [WeightOptions("x"), WeightOptions(weights="int8"), WeightOptions(dtype="float32")]
)
def test_a_whisper_has_no_choice_of_weights(folder: Path, weights: WeightOptions) -> None:
    with pytest.raises(ConfigError, match="no such choice") as caught:
        load_recognizer(str(folder), None, weights)
    assert caught.value.code == "weights_unsupported"
    assert str(folder) in caught.value.message


@pytest.mark.parametrize("kind", ["gemma4", "qwen3_omni_moe", "qwen3_omni_moe_thinker"])
def test_a_model_that_only_the_loop_knows_says_what_is_supported(folder: Path, kind: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": kind}))
    error = refused(folder)
    assert error.code == "unsupported_model"
    assert str(folder) in error.message
    assert "docs/gemma4-qwen3-omni.md" in error.message
    assert "Gemma-3n" in error.remedy


@pytest.mark.parametrize(
    ("contents", "what"), [("{", "cannot be read"), ("[]", "no settings"), ('{"x": "é', "read")]
)
def test_a_broken_config_is_named(folder: Path, contents: str, what: str) -> None:
    (folder / "config.json").write_text(contents, "latin-1")
    error = refused(folder)
    assert error.code == "weights_corrupt"
    assert "config.json" in error.message
    assert what in error.message


def test_a_missing_size_is_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["d_model"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "d_model" in refused(folder).message


def test_a_missing_tensor_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.encoder.conv2.weight"]
    save_file(tensors, folder / "model.safetensors")
    error = refused(folder)
    assert error.code == "weights_corrupt"
    assert "model.encoder.conv2.weight" in error.message


@pytest.mark.parametrize("contents", ["", "{}", "not a tokenizer"])
def test_a_broken_tokenizer_is_named(folder: Path, contents: str) -> None:
    (folder / "tokenizer.json").write_text(contents)
    error = refused(folder)
    assert error.code == "weights_corrupt"
    assert "tokenizer.json" in error.message


def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(WeightsError, match="no-such-model"):
        load_recognizer("no-such-model")


def test_the_caches_of_kernels_are_bounded_unless_the_user_says_otherwise() -> None:
    environment = {KERNEL_CACHE_VARIABLES[0]: "7"}
    bound_kernel_caches(environment)
    assert environment == {KERNEL_CACHE_VARIABLES[0]: "7", KERNEL_CACHE_VARIABLES[1]: "32"}


def test_loading_bounds_the_caches_of_kernels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KERNEL_CACHE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    load_recognizer(str(folder))
    assert [os.environ[name] for name in KERNEL_CACHE_VARIABLES] == ["32", "32"]
