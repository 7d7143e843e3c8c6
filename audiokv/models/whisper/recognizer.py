"""A Whisper model of any size as a ``Recognizer``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from audiokv.models.base import RecognizerInfo
from audiokv.models.whisper.alignment import SLOT_MS
from audiokv.models.whisper.features import mel_filters
from audiokv.models.whisper.network import Dimensions, WhisperNetwork, fastest_dtype
from audiokv.models.whisper.stream import (
    WhisperModel,
    WhisperStream,
    WindowOptions,
    max_window_ms,
)
from audiokv.models.whisper.text import WhisperText

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from audiokv.models.base import Hypothesis, RecognizerStream, StreamOptions

_N_MULTILINGUAL_TOKENS = 51_865  # vocabularies from this size on know many languages


class WhisperFiles:
    """The files of one Whisper model, in the Hugging Face layout.

    Args:
        folder: Holds ``config.json``, ``tokenizer.json``, ``model.safetensors`` or its parts with
            an index, and ``generation_config.json``, which old models lack.

    Attributes:
        dims: Sizes of the model.
        alignment_heads: (layer, head) pairs whose cross-attention follows time.

    Raises:
        KeyError: A size is missing.
        ValueError: A file cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        generation_file = folder / "generation_config.json"
        stated = json.loads(generation_file.read_text("utf-8")) if generation_file.exists() else {}
        self._folder = folder
        self._generation = config | stated
        self.dims = Dimensions.from_config(config)
        self.alignment_heads = _alignment_heads(self._generation, self.dims)

    def model(self, dtype: torch.dtype, heads: list[tuple[int, int]]) -> WhisperModel:
        """Load the weights and the vocabulary.

        Args:
            dtype: Type of the matrix products.
            heads: (layer, head) pairs whose cross-attention can be read.

        Raises:
            KeyError: A tensor is missing.
            ValueError: A file cannot be read, or is not Whisper's.
        """
        dims = self.dims
        text = WhisperText(self._folder / "tokenizer.json")
        is_multilingual = dims.n_vocabulary >= _N_MULTILINGUAL_TOKENS
        if not self._generation.get("is_multilingual", is_multilingual):
            text.language_ids = {}
        suppressed = self._generation.get("suppress_tokens") or []
        return WhisperModel(
            network=WhisperNetwork(_load_tensors(self._folder), dims, dtype, heads),
            text=text,
            mel_filters=mel_filters(dims.n_mels),
            suppressed=[t for t in suppressed if 0 <= t < dims.n_vocabulary],
        )


class WhisperRecognizer:
    """Implements ``Recognizer`` with the embedded default model or any other Whisper.

    Args:
        folder: The model's files; see ``WhisperFiles``.
        name: Name shown to clients.
        dtype: Type of the matrix products; None measures which is fastest.
        window: Sizes of the live window.

    Raises:
        KeyError: A size or a tensor is missing.
        ValueError: A file cannot be read, or is not Whisper's.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        dtype: torch.dtype | None = None,
        window: WindowOptions | None = None,
    ) -> None:
        files = WhisperFiles(folder)
        self._model = files.model(dtype or fastest_dtype(), files.alignment_heads)
        self._window = window or WindowOptions()
        self.info = RecognizerInfo(
            name=name,
            slot_ms=SLOT_MS,
            languages=frozenset(self._model.text.language_ids) or frozenset({"en"}),
            aligns=True,
            max_window_ms=max_window_ms(files.dims, self._window),
        )

    def open_stream(self, options: StreamOptions) -> WhisperStream:
        """Return fresh state for one stream."""
        return WhisperStream(self._model, options, self._window)

    @torch.inference_mode()
    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows one after the other: a CPU gains nothing from a batch.

        Raises:
            TypeError: A stream is another recogniser's.
        """
        return [_own(stream).decode() for stream in streams]


def _own(stream: RecognizerStream) -> WhisperStream:
    if not isinstance(stream, WhisperStream):
        raise TypeError(f"a {type(stream).__name__} was not opened by a Whisper recogniser")
    return stream


def _load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    whole = folder / "model.safetensors"
    if whole.exists():
        return load_file(whole)
    index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))
    tensors: dict[str, torch.Tensor] = {}
    for part in sorted(set(index["weight_map"].values())):
        tensors.update(load_file(folder / part))
    return tensors


def _alignment_heads(generation: Mapping[str, Any], dims: Dimensions) -> list[tuple[int, int]]:
    """Return the heads the model names, as far as it has them, else those that usually follow time.

    Distilled models may still name the heads of the larger model they were made from.
    """
    named = [(int(layer), int(head)) for layer, head in generation.get("alignment_heads") or []]
    held = [
        (layer, head)
        for layer, head in named
        if layer < dims.n_decoder_layers and head < dims.n_decoder_heads
    ]
    return held or _later_half_heads(dims)


def _later_half_heads(dims: Dimensions) -> list[tuple[int, int]]:
    """Return every head of the later layers."""
    first = dims.n_decoder_layers // 2
    return [
        (layer, head)
        for layer in range(first, dims.n_decoder_layers)
        for head in range(dims.n_decoder_heads)
    ]
