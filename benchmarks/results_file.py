"""Results on disk: figures with the commit, date, machine and versions they come from."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
PACKAGES = ("audiokv", "torch", "transformers", "onnxruntime", "numpy", "websockets", "samplerate")


def provenance(packages: Sequence[str] = PACKAGES) -> dict[str, object]:
    """Return where, when and with what something is measured.

    Args:
        packages: Distributions whose versions matter; those not installed are left out.
    """
    return {
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "is_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(packages),
    }


def machine() -> dict[str, object]:
    """Return what a reader needs to compare figures with those of another machine."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "n_cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1_min": round(psutil.getloadavg()[0], 2),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_results(
    name: str, content: Mapping[str, object], origin: Mapping[str, object], folder: Path = RESULTS
) -> Path:
    """Write ``NAME.json`` and return its path.

    Args:
        name: Name of the benchmark.
        content: Its figures; anything JSON can say.
        origin: What `provenance` said when the measurement began.
        folder: Where it goes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps({"benchmark": name, **origin, **content}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")
    return path


def _cpu_name() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text("utf-8").splitlines() if listing.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  fixed arguments
            ["git", *arguments],  # noqa: S607  whichever git is on the path
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
