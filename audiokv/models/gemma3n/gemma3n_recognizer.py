"""A Gemma-3n model of any size as a ``Recognizer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from audiokv.models.base import RecognizerInfo
from audiokv.models.gemma3n.checkpoint import best_device, best_dtype, load_checkpoint
from audiokv.models.gemma3n.gemma3n_stream import (
    Gemma3nStream,
    GemmaModel,
    WindowOptions,
)
from audiokv.models.gemma3n.mel import MelFrontEnd
from audiokv.models.gemma3n.prompt_layout import (
    LANGUAGE_NAMES,
    ChatLayout,
    ModelSettings,
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


class Gemma3nRecognizer:
    """Implements ``Recognizer`` with a Gemma-3n's audio tower and text model.

    Args:
        folder: Weights in the Hugging Face layout: ``config.json``, ``tokenizer.json``,
            safetensors, ``preprocessor_config.json`` where the front end is not Gemma-3n's own, and
            ``audiokv.json`` where the model has settings for this program.
        name: Name shown to clients.
        window: Sizes of the live window.

    Raises:
        KeyError: A size or a tensor is missing.
        ValueError: A file cannot be read, or is not Gemma-3n's.
        ConfigError: The model cannot be streamed, or its settings mean nothing.
    """

    def __init__(self, folder: Path, name: str, window: WindowOptions | None = None) -> None:
        settings = ModelSettings.from_folder(folder)
        device = best_device()
        dtype = getattr(torch, settings.dtype) if settings.dtype else best_dtype(device)
        speech = SpeechModel(load_checkpoint(folder, dtype, device))
        front_end = MelFrontEnd.from_folder(folder)
        vocabulary = Vocabulary(folder / "tokenizer.json")
        special = SpecialTokens.from_config(speech.config)
        layout = choose_layout(settings, special, vocabulary)
        self._window = window or WindowOptions()
        self._model = GemmaModel(
            speech=speech,
            front_end=front_end,
            vocabulary=vocabulary,
            special=special,
            layout=layout,
            settings=settings,
            slot_ms=slot_length_ms(speech, front_end),
        )
        languages = LANGUAGE_NAMES if isinstance(layout, ChatLayout) else {"en"}
        self.info = RecognizerInfo(
            name=name,
            slot_ms=self._model.slot_ms,
            languages=settings.languages or frozenset(languages),
            aligns=bool(settings.alignment_heads),
            max_window_ms=self._window.max_window_ms,
        )

    def open_stream(self, options: StreamOptions) -> Gemma3nStream:
        """Return fresh state for one stream.

        Raises:
            ConfigError: The budget does not fit the model, or there is no such profile.
        """
        return Gemma3nStream(self._model, options, self._window)

    @torch.inference_mode()
    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows one after the other.

        Raises:
            TypeError: A stream is another recogniser's.
        """
        return [_own(stream).decode() for stream in streams]


def _own(stream: RecognizerStream) -> Gemma3nStream:
    if not isinstance(stream, Gemma3nStream):
        raise TypeError(f"a {type(stream).__name__} was not opened by a Gemma-3n recogniser")
    return stream
