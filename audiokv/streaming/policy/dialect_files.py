"""Where dialect priors lie: in files of any name, or by name in the user's own folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.streaming.policy.dialect import load_prior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.streaming.policy.dialect import DialectPrior

SUFFIX = ".json"


def dialect_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of named priors: in ``$XDG_DATA_HOME`` or ``~/.local/share``."""
    shared = environment.get("XDG_DATA_HOME")
    root = Path(shared) if shared else Path.home() / ".local" / "share"
    return root / "audiokv" / "dialects"


def dialect_path(wanted: str, folder: Path) -> Path:
    """Return the file of a prior.

    Args:
        wanted: A file, told by its folder or its ``.json``; else a name.
        folder: Where names are looked up.
    """
    path = Path(wanted).expanduser()
    if path.suffix == SUFFIX:
        return path
    if path.name != wanted:
        return path.with_name(path.name + SUFFIX)
    return folder / f"{wanted}{SUFFIX}"


def find_prior(wanted: str, folder: Path) -> DialectPrior:
    """Read a prior.

    Args:
        wanted: A name or a file, as ``dialect_path`` takes it.
        folder: Where names are looked up.

    Raises:
        ConfigError: There is none, or the file is not a prior.
    """
    path = dialect_path(wanted, folder)
    return load_prior(path.stem, path.parent)
