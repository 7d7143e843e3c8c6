from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import results_file
from benchmarks.results_file import machine, provenance, versions, write_results

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_results_say_where_they_come_from(tmp_path: Path) -> None:
    path = write_results("captions", {"figures": {"ü": 1.5}}, provenance(), tmp_path / "new")
    assert path == tmp_path / "new" / "captions.json"
    found = json.loads(path.read_text("utf-8"))
    assert found["benchmark"] == "captions"
    assert found["figures"] == {"ü": 1.5}
    assert {"commit", "is_modified", "date", "machine", "versions"} <= found.keys()
    assert "ü" in path.read_text("utf-8")


def test_the_machine_and_versions_are_named() -> None:
    assert machine()["n_cores"]
    assert machine()["cpu"] != ""
    found = versions(["numpy", "no-such-package"])
    assert set(found) == {"python", "numpy"}


def test_outside_a_repository_the_commit_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_file, "REPOSITORY", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    origin = provenance()
    assert (origin["commit"], origin["is_modified"]) == ("unknown", False)
