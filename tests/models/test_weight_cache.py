from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from audiokv.models.weight_cache import MANIFEST, WeightCache, cache_root, digest_file
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable


def write_two_files(folder: Path) -> list[str]:
    (folder / "a").write_bytes(b"first" * 1000)
    (folder / "b").write_bytes(b"second" * 1000)
    return ["a", "b"]


@pytest.fixture
def cache(tmp_path: Path) -> WeightCache:
    return WeightCache(tmp_path / "model", {"model.bin": "00ff"})


def truncate(folder: Path) -> None:
    (folder / "a").write_bytes((folder / "a").read_bytes()[:-1])


def flip_a_byte(folder: Path) -> None:
    content = bytearray((folder / "b").read_bytes())
    content[17] ^= 1
    (folder / "b").write_bytes(content)


def remove_a_file(folder: Path) -> None:
    (folder / "a").unlink()


def cut_the_manifest(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text[: len(text) // 2])


def empty_the_manifest(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"files": {}}))


def make_the_manifest_a_list(folder: Path) -> None:
    (folder / MANIFEST).write_text("[]")


def age_the_layout(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"layout": 0}))


def test_an_empty_place_is_not_valid(cache: WeightCache) -> None:
    assert not cache.is_valid()


def test_a_built_cache_is_valid_and_leaves_nothing_else(cache: WeightCache) -> None:
    cache.build(write_two_files)
    assert cache.is_valid()
    assert {path.name for path in cache.folder.iterdir()} == {"a", "b", MANIFEST}


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip_a_byte,
        remove_a_file,
        cut_the_manifest,
        empty_the_manifest,
        make_the_manifest_a_list,
        age_the_layout,
    ],
)
def test_damage_is_noticed_and_mended(cache: WeightCache, damage: Callable[[Path], None]) -> None:
    cache.build(write_two_files)
    damage(cache.folder)
    assert not cache.is_valid()
    cache.build(write_two_files)
    assert cache.is_valid()


def test_other_weights_do_not_count(cache: WeightCache) -> None:
    cache.build(write_two_files)
    assert not WeightCache(cache.folder, {"model.bin": "00fe"}).is_valid()


def test_an_interrupted_conversion_publishes_nothing(cache: WeightCache) -> None:
    def interrupted(folder: Path) -> list[str]:
        write_two_files(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.build(interrupted)
    assert not cache.is_valid()
    assert list(cache.folder.iterdir()) == []


def test_a_killed_conversion_s_remains_go_after_an_hour(cache: WeightCache) -> None:
    old, young = cache.folder / ".converting-old", cache.folder / ".converting-young"
    for left in (old, young):
        left.mkdir(parents=True)
        (left / "a").write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.build(write_two_files)
    assert not old.exists()
    assert young.exists()
    assert cache.is_valid()


def test_conversions_at_once_leave_a_valid_cache_and_no_half_file(cache: WeightCache) -> None:
    barrier = threading.Barrier(4)
    expected = {"a": b"first" * 1000, "b": b"second" * 1000}
    wrong: list[str] = []

    def convert() -> None:
        barrier.wait()
        for _ in range(20):
            cache.build(write_two_files)
            wrong.extend(n for n, raw in expected.items() if (cache.folder / n).read_bytes() != raw)
            if not cache.is_valid():
                wrong.append("manifest")

    threads = [threading.Thread(target=convert) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {path.name for path in cache.folder.iterdir()} == {"a", "b", MANIFEST}


def test_an_unwritable_place_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WeightsError) as caught:
        WeightCache(tmp_path / "file" / "model", {}).build(write_two_files)
    assert caught.value.code == "cache_unwritable"
    assert "AUDIOKV_CACHE" in caught.value.remedy


def test_the_root_follows_the_environment() -> None:
    assert cache_root({"AUDIOKV_CACHE": "/x", "XDG_CACHE_HOME": "/y"}) == Path("/x")
    assert cache_root({"XDG_CACHE_HOME": "/y"}) == Path("/y/audiokv")
    assert cache_root({}) == Path.home() / ".cache" / "audiokv"


def test_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert digest_file(tmp_path / "abc").startswith("ba7816bf8f01cfea414140de5dae2223")
