"""A Gemma-3n model of any size as a ``Recognizer``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from audiokv.models.base import RecognizerInfo, WeightOptions
from audiokv.models.gemma3n.adapters import merge_adapter
from audiokv.models.gemma3n.batch import BatchRunner
from audiokv.models.gemma3n.batch_requests import run_alone
from audiokv.models.gemma3n.checkpoint import best_device, best_dtype, load_checkpoint
from audiokv.models.gemma3n.compressed_weights import WeightFormat, compress
from audiokv.models.gemma3n.gemma3n_stream import (
    Gemma3nStream,
    GemmaModel,
    WindowOptions,
)
from audiokv.models.gemma3n.mel import MelFrontEnd
from audiokv.models.gemma3n.model_settings import ModelSettings
from audiokv.models.gemma3n.prompt_layout import (
    LANGUAGE_NAMES,
    ChatLayout,
    SpecialTokens,
    choose_layout,
)
from audiokv.models.gemma3n.slot_source import slot_length_ms
from audiokv.models.gemma3n.speech_model import SpeechModel
from audiokv.models.gemma3n.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.models.base import Hypothesis, RecognizerStream, StreamOptions
    from audiokv.models.gemma3n.checkpoint import SpeechCheckpoint

# Streams that share passes. A small model on a processor spends its time on calls, not on sums.
_BATCH_STREAMS = {"cuda": 32, "cpu": 8}


class Gemma3nRecognizer:
    """Implements ``Recognizer`` with a Gemma-3n's audio tower and text model.

    Args:
        folder: Weights in the Hugging Face layout: ``config.json``, ``tokenizer.json``,
            safetensors, ``preprocessor_config.json`` where the front end is not Gemma-3n's own, and
            ``audiokv.json`` where the model has settings for this program.
        name: Name shown to clients.
        window: Sizes of the live window.
        weights: How to load them; a type named here comes before the folder's.

    Raises:
        KeyError: A size or a tensor is missing.
        ValueError: A file cannot be read, or is not Gemma-3n's.
        WeightsError: The adapter does not fit, or a library for these weights is missing.
        ConfigError: The model cannot be streamed, or its settings mean nothing or name
            heads that it has not.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        window: WindowOptions | None = None,
        weights: WeightOptions | None = None,
    ) -> None:
        settings = ModelSettings.from_folder(folder)
        device = best_device()
        speech = SpeechModel(_load(folder, settings, weights or WeightOptions(), device))
        n_heads = int(speech.text_config.num_attention_heads)
        settings.check_heads(folder, speech.full_attention_layers, n_heads)
        front_end = MelFrontEnd.from_folder(folder)
        vocabulary = Vocabulary(folder / "tokenizer.json")
        special = SpecialTokens.from_config(speech.config)
        layout = choose_layout(settings, special, vocabulary)
        self._window = window or WindowOptions()
        if settings.resets_norm:
            self._window = replace(self._window, resets_norm=True)
        self._model = GemmaModel(
            speech=speech,
            front_end=front_end,
            vocabulary=vocabulary,
            special=special,
            layout=layout,
            settings=settings,
            slot_ms=slot_length_ms(speech, front_end),
        )
        self._batch = BatchRunner(speech)
        languages = LANGUAGE_NAMES if isinstance(layout, ChatLayout) else {"en"}
        self.info = RecognizerInfo(
            name=name,
            slot_ms=self._model.slot_ms,
            languages=settings.languages or frozenset(languages),
            aligns=bool(settings.alignment_heads),
            max_window_ms=self._window.max_window_ms,
            context_gap_ms=self._window.context_gap_ms,
            batch_streams=_BATCH_STREAMS[device.type],
        )

    def open_stream(self, options: StreamOptions) -> Gemma3nStream:
        """Return fresh state for one stream.

        Raises:
            ConfigError: The budget does not fit the model, or there is no such profile.
        """
        return Gemma3nStream(self._model, options, self._window)

    @torch.inference_mode()
    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows; those of several streams share passes.

        Raises:
            TypeError: A stream is another recogniser's.
        """
        works = [_own(stream).decoding() for stream in streams]
        return [run_alone(work) for work in works] if len(works) == 1 else self._batch.run(works)


def _load(
    folder: Path, settings: ModelSettings, weights: WeightOptions, device: torch.device
) -> SpeechCheckpoint:
    dtype_name = weights.dtype or settings.dtype
    dtype = getattr(torch, dtype_name) if dtype_name else best_dtype(device)
    checkpoint = load_checkpoint(folder, dtype, device)
    if weights.adapter is not None:
        checkpoint = merge_adapter(checkpoint, weights.adapter)
    compress(checkpoint, WeightFormat(weights.weights))
    return checkpoint


def _own(stream: RecognizerStream) -> Gemma3nStream:
    if not isinstance(stream, Gemma3nStream):
        raise TypeError(f"a {type(stream).__name__} was not opened by a Gemma-3n recogniser")
    return stream
