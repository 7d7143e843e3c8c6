"""A Whisper model of any size as a ``Recognizer``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from audiokv.models.base import RecognizerInfo
from audiokv.models.whisper.alignment import SLOT_MS
from audiokv.models.whisper.features import mel_filters
from audiokv.models.whisper.network import Dimensions, WhisperNetwork, fastest_dtype
from audiokv.models.whisper.stream import WhisperStream, WindowOptions
from audiokv.models.whisper.text import WhisperText

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.models.base import Hypothesis, StreamOptions


class WhisperRecognizer:
    """Implements ``Recognizer`` with the embedded default model or any other Whisper.

    Args:
        folder: Weights in the Hugging Face layout: ``config.json``, ``generation_config.json``,
            ``tokenizer.json`` and ``model.safetensors``.
        name: Name shown to clients.
        dtype: Type of the matrix products; None measures which is fastest.
        window: Sizes of the live window.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        dtype: torch.dtype | None = None,
        window: WindowOptions | None = None,
    ) -> None:
        config = json.loads((folder / "config.json").read_text())
        generation = json.loads((folder / "generation_config.json").read_text())
        dims = Dimensions.from_config(config)
        self._text = WhisperText(folder / "tokenizer.json")
        heads = generation.get("alignment_heads") or _later_half_heads(dims)
        self._network = WhisperNetwork(
            load_file(folder / "model.safetensors"),
            dims,
            dtype or fastest_dtype(),
            [(int(layer), int(head)) for layer, head in heads],
        )
        self._suppressed = [
            t for t in generation.get("suppress_tokens") or [] if 0 <= t < dims.n_vocabulary
        ]
        self._filters = mel_filters(dims.n_mels)
        self._window = window or WindowOptions()
        is_multilingual = generation.get("is_multilingual", bool(self._text.language_ids))
        if not is_multilingual:
            self._text.language_ids = {}
        self.info = RecognizerInfo(
            name=name,
            slot_ms=SLOT_MS,
            languages=frozenset(self._text.language_ids) or frozenset({"en"}),
            aligns=True,
            max_window_ms=dims.max_source_positions * SLOT_MS - self._window.padding_ms,
        )

    def open_stream(self, options: StreamOptions) -> WhisperStream:
        """Return fresh state for one stream."""
        return WhisperStream(
            self._network, self._text, self._filters, self._suppressed, options, self._window
        )

    @torch.inference_mode()
    def decode(self, streams: Sequence[WhisperStream]) -> list[Hypothesis]:
        """Recognise the windows one after the other: a CPU gains nothing from a batch."""
        return [stream.decode() for stream in streams]


def _later_half_heads(dims: Dimensions) -> list[tuple[int, int]]:
    """Return the heads that usually follow time, for a model that does not name its own."""
    first = dims.n_decoder_layers // 2
    return [
        (layer, head)
        for layer in range(first, dims.n_decoder_layers)
        for head in range(dims.n_decoder_heads)
    ]
