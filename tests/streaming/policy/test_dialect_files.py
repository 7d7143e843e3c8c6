from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.dialect import DialectPrior
from audiokv.streaming.policy.dialect_files import dialect_folder, dialect_path, find_prior

FOLDER = Path("shared") / "dialects"


def test_the_folder_is_the_users_own() -> None:
    assert dialect_folder({"XDG_DATA_HOME": "data"}) == Path("data/audiokv/dialects")
    own = Path.home() / ".local" / "share" / "audiokv" / "dialects"
    assert dialect_folder({}) == dialect_folder({"XDG_DATA_HOME": ""}) == own


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ("scots", FOLDER / "scots.json"),
        ("v1.2", FOLDER / "v1.2.json"),
        ("scots.json", Path("scots.json")),
        ("here/scots", Path("here/scots.json")),
        ("here/v1.2", Path("here/v1.2.json")),
        ("here/v1.2.json", Path("here/v1.2.json")),
        ("~/scots", Path.home() / "scots.json"),
    ],
)
def test_names_and_files_are_told_apart(wanted: str, path: Path) -> None:
    assert dialect_path(wanted, FOLDER) == path


def test_a_prior_is_found_by_name_and_by_file(tmp_path: Path) -> None:
    templates = np.eye(2, 20)
    for name, factor in [("scots", 1.5), ("v1.2", 0.75)]:
        DialectPrior(name, templates, np.array([factor, 1.0])).save(tmp_path / f"{name}.json")
    elsewhere = tmp_path / "nothing"
    assert find_prior("scots", tmp_path).factors[0] == 1.5
    assert find_prior("v1.2", tmp_path).name == "v1.2"
    assert find_prior(str(tmp_path / "scots.json"), elsewhere).factors[0] == 1.5
    assert find_prior(str(tmp_path / "v1.2"), elsewhere).factors[0] == 0.75
    for wanted in ("welsh", str(tmp_path / "welsh.json")):
        with pytest.raises(ConfigError, match="welsh") as caught:
            find_prior(wanted, tmp_path)
        assert caught.value.code == "unknown_dialect"
        assert "scots, v1.2" in caught.value.remedy
    with pytest.raises(ConfigError, match="Build one"):
        find_prior("scots", elsewhere)
