"""A folder of converted weights that is either whole and verified, or rebuilt."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MANIFEST = "audiokv-manifest.json"
LAYOUT_VERSION = 2  # rises when the conversion writes something else
STALE_AFTER_S = 3600.0
TEMPORARY_PREFIX = ".converting-"


def cache_root(environment: Mapping[str, str]) -> Path:
    """Return the cache folder: ``$AUDIOKV_CACHE``, ``$XDG_CACHE_HOME/audiokv`` or ``~/.cache``."""
    if chosen := environment.get("AUDIOKV_CACHE"):
        return Path(chosen)
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "audiokv"
    return Path.home() / ".cache" / "audiokv"


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class WeightCache:
    """One converted model's place in the cache.

    The files are built in a temporary folder, moved into place one by one, and the manifest with
    their digests comes last. A conversion always writes the same bytes, so two processes that
    convert at once replace each other's files by equal ones, and a reader never meets half a file.

    Attributes:
        folder: Where the model's files lie.
        source_sha256: Digests of the files they are made from, by name.
    """

    folder: Path
    source_sha256: Mapping[str, str]

    def is_valid(self) -> bool:
        """Whether every file is there with the digest the manifest gives it."""
        try:
            manifest: dict[str, Any] = json.loads((self.folder / MANIFEST).read_text("utf-8"))
            digests: dict[str, str] = manifest["files"]
            if manifest["layout"] != LAYOUT_VERSION:
                return False
            if manifest["source_sha256"] != dict(self.source_sha256):
                return False
            return bool(digests) and all(
                digest_file(self.folder / name) == sha for name, sha in digests.items()
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def build(self, write: Callable[[Path], Iterable[str]]) -> None:
        """Fill the folder.

        Args:
            write: Writes the model into the folder it is given and returns the names of its files.

        Raises:
            WeightsError: The cache cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._drop_stale()
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=TEMPORARY_PREFIX) as name:
                self._publish(Path(name), write)
        except OSError as error:
            raise WeightsError(
                "cache_unwritable",
                f"The converted weights cannot be written to {self.folder}: {error.strerror}.",
                "Free some space there, or set AUDIOKV_CACHE to a folder you can write to.",
            ) from error

    def _publish(self, scratch: Path, write: Callable[[Path], Iterable[str]]) -> None:
        names = sorted(write(scratch))
        manifest = {
            "layout": LAYOUT_VERSION,
            "source_sha256": dict(self.source_sha256),
            "files": {name: digest_file(scratch / name) for name in names},
        }
        (scratch / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
        for name in (*names, MANIFEST):
            _sync(scratch / name)
            (scratch / name).replace(self.folder / name)

    def _drop_stale(self) -> None:
        """Remove what conversions that were killed long ago have left behind."""
        for left in self.folder.glob(f"{TEMPORARY_PREFIX}*"):
            with contextlib.suppress(FileNotFoundError):  # its owner has just cleaned up
                if time.time() - left.stat().st_mtime > STALE_AFTER_S:
                    shutil.rmtree(left, ignore_errors=True)


def _sync(path: Path) -> None:
    """Have the file on the disk before its name is, so that a power cut leaves no empty file."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
