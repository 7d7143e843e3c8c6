"""Offline decoding of the same weights by transformers: what streaming is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.recordings import Recording


class OfflineDecoder:
    """Greedy decoding in float32 with 30 s of context and the language given.

    Args:
        folder: Weights in Hugging Face's layout.
    """

    def __init__(self, folder: Path) -> None:
        self._model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        n_mels = self._model.config.num_mel_bins
        self._features = WhisperFeatureExtractor(feature_size=n_mels)  # type: ignore[no-untyped-call]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._is_multilingual = bool(
            getattr(self._model.generation_config, "is_multilingual", True)
        )

    @torch.inference_mode()
    def text(self, recording: Recording) -> str:
        """Return what the model makes of a whole recording."""
        features = self._features(
            recording.samples(), sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt"
        ).input_features
        wishes = (
            {"language": recording.language, "task": "transcribe"} if self._is_multilingual else {}
        )
        tokens = self._model.generate(features, num_beams=1, do_sample=False, **wishes)
        text: str = self._tokenizer.decode(tokens[0].tolist(), skip_special_tokens=True)
        return text.strip()
