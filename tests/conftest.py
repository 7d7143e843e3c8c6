"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the working tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def speech_folder() -> Path:
    """Folder of real recordings with a manifest: beside the repository, or $AUDIOKV_SPEECH."""
    folder = Path(os.environ.get("AUDIOKV_SPEECH") or REPOSITORY.parent / "shared" / "speech")
    if not (folder / "manifest.jsonl").is_file():
        pytest.fail(f"No recordings in {folder}: set AUDIOKV_SPEECH to the folder that has them.")
    return folder
