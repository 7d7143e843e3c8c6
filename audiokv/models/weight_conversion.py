"""A CTranslate2 model written anew in Hugging Face's layout."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from audiokv.models.ctranslate2 import read_model, whisper_tensors
from audiokv.models.weight_packages import CTRANSLATE2_WEIGHTS
from audiokv.models.whisper_settings import whisper_settings
from audiokv.streaming.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

CHUNK_BYTES = 1 << 22
WEIGHTS = "model.safetensors"


class Conversion:
    """Reads the files of one CTranslate2 model under a progress bar, then writes them anew.

    Args:
        name: Name of the model, shown beside the bar.
        parts: ``model.bin``, ``config.json`` and ``tokenizer.json``: the parts of each, in order.
    """

    def __init__(self, name: str, parts: Mapping[str, list[Path]]) -> None:
        self._name = name
        self._parts = parts
        self._contents: dict[str, bytearray] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )

    def __enter__(self) -> Self:
        try:
            with contextlib.ExitStack() as stack:
                sizes = [path.stat().st_size for paths in self._parts.values() for path in paths]
                stack.enter_context(self._progress)
                self._task = self._progress.add_task(
                    f"Verifying {self._name}", total=2 * sum(sizes)
                )
                self._contents = {file: self._read(paths) for file, paths in self._parts.items()}
                stack.pop_all()
        except OSError as error:
            raise WeightsError(
                "weights_unreadable",
                f"The weights of {self._name} cannot be read: {error}.",
                "Check that the file is there and may be read.",
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _read(self, paths: Iterable[Path]) -> bytearray:
        content = bytearray()
        for path in paths:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    content += chunk
                    self._progress.advance(self._task, len(chunk))
        return content

    def sha256(self, file: str) -> str:
        """Return the digest of one of the files."""
        return hashlib.sha256(self._contents[file]).hexdigest()

    def write(self, folder: Path) -> list[str]:
        """Write the model in Hugging Face's layout and return the names of the files."""
        from safetensors.numpy import save_file  # noqa: PLC0415  comes with the model's extra

        self._progress.update(self._task, description=f"Converting {self._name} (once)")
        model = read_model(self._contents[CTRANSLATE2_WEIGHTS])
        settings = whisper_settings(model, self._json("config.json"), self._json("tokenizer.json"))
        save_file(whisper_tensors(model), folder / WEIGHTS, metadata={"format": "pt"})
        (folder / "tokenizer.json").write_bytes(self._contents["tokenizer.json"])
        for file, content in settings.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (folder / file).write_text(text + "\n", "utf-8")
        self._progress.update(
            self._task, completed=2 * sum(len(content) for content in self._contents.values())
        )
        return [WEIGHTS, "tokenizer.json", *settings]

    def _json(self, file: str) -> dict[str, Any]:
        try:
            content = json.loads(self._contents[file])
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise WeightsError(
                "weights_corrupt",
                f"The {file} of {self._name} is not a JSON object.",
                "Fetch the model again.",
            )
        return content
