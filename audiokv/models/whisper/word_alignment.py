"""What a Whisper model attends to while a known text is said, and when each word is said."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from audiokv.models.head_scores.hit_ratios import TOP_K
from audiokv.models.whisper.alignment import SLOT_MS, token_starts_ms
from audiokv.models.whisper.decoding import DraftDecoder
from audiokv.models.whisper.features import IncrementalLogMel
from audiokv.models.whisper.network import SelfCache
from audiokv.models.whisper.recognizer import WhisperFiles
from audiokv.models.whisper.stream import (
    SAMPLES_PER_MS,
    SLOT_SAMPLES,
    WindowOptions,
    max_window_ms,
)
from audiokv.models.whisper.text import UNSPACED_LANGUAGES
from audiokv.streaming.errors import ConfigError, WeightsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from audiokv.models.base import FloatArray
    from audiokv.models.recordings import TimedWord
    from audiokv.models.weights import ModelFiles
    from audiokv.models.whisper.cross_cache import CrossCache


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word as the model says it.

    Attributes:
        text: The word.
        first_token: Its first row of the attention.
        end_token: The row behind its last.
        start_ms: Where it begins in the audio.
        end_ms: Where it ends, never before ``start_ms``.
        probability: That the model gives its tokens, their geometric mean.
    """

    text: str
    first_token: int
    end_token: int
    start_ms: int
    end_ms: int
    probability: float


@dataclass(frozen=True, slots=True, eq=False)
class AlignedSpeech:
    """What happened while the model said a text.

    Attributes:
        words: Its words in order.
        attention: Cross-attention of every head, shape (layers, heads, tokens + 1, slots); row i
            is that with which token i was predicted, the last one belongs to the end of the text,
            and the slots of the padding come behind those of the audio.
    """

    words: tuple[AlignedWord, ...]
    attention: FloatArray


class Aligner(Protocol):
    """What says a text over its audio; see ``WordAligner``."""

    shape: tuple[int, int]
    max_ms: int
    slot_ms: int
    top_k: int

    def align(
        self,
        samples: FloatArray,
        language: str | None = None,
        text: str | None = None,
        words: Sequence[TimedWord] = (),
    ) -> AlignedSpeech:
        """Say a text over its audio."""


class WordAligner:
    """Lets a Whisper model say what is in a recording, and reads all its cross-attention.

    Args:
        folder: The model's files in Hugging Face's layout.
        dtype: Type of the matrix products; by default the one that gives the same everywhere.

    Attributes:
        shape: Layers of the decoder, and heads of a layer.
        max_ms: Longest audio that is aligned at once.
        slot_ms: Length of a slot.
        top_k: Most attended slots that count in a head's score.
        languages: ISO 639-1 codes the model knows; empty for English only.

    Raises:
        KeyError: A size or a tensor is missing.
        ValueError: A file cannot be read, or is not Whisper's.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        files = WhisperFiles(folder)
        dims = files.dims
        heads = [(i, j) for i in range(dims.n_decoder_layers) for j in range(dims.n_decoder_heads)]
        self._model = files.model(dtype, heads)
        self._aligned = [heads.index(pair) for pair in files.alignment_heads]
        self.shape = (dims.n_decoder_layers, dims.n_decoder_heads)
        window = WindowOptions()
        self._padding_slots = window.padding_ms // SLOT_MS
        self.max_ms = max_window_ms(dims, window)
        self.slot_ms = SLOT_MS
        self.top_k = TOP_K
        self.languages = frozenset(self._model.text.language_ids)

    @torch.inference_mode()
    def align(
        self,
        samples: FloatArray,
        language: str | None = None,
        text: str | None = None,
        words: Sequence[TimedWord] = (),
    ) -> AlignedSpeech:
        """Say a text over its audio.

        Args:
            samples: Shape (n,), 16 kHz mono, at most ``max_ms``.
            language: ISO 639-1 code; None lets the model detect it.
            text: What is said; None lets the model recognise it.
            words: The same with its times, which then count; else the model's own alignment does.

        Raises:
            ConfigError: The audio or the text is too long for the model, or there is no such
                language.
        """
        self._check(samples, language)
        cross = self._encode(samples)
        code = language or self._detect(cross)
        start = self._model.text.start_tokens(code)
        spelt = self._spell(start, cross, code, text, words)
        tokens = [token for word in spelt for token in word.tokens]
        attention, log_probabilities = self._say(start, tokens, cross)
        by_time = attention[..., : cross.n_audio_slots]
        starts_ms = token_starts_ms(by_time.reshape(-1, *by_time.shape[2:])[self._aligned])
        aligned = []
        end = 0
        for word in spelt:
            first, end = end, end + len(word.tokens)
            start_ms, end_ms = word.time_ms or (int(starts_ms[first]), int(starts_ms[end]))
            probability = math.exp(float(log_probabilities[first:end].mean()))
            aligned.append(AlignedWord(word.text, first, end, start_ms, end_ms, probability))
        return AlignedSpeech(tuple(aligned), attention)

    def _check(self, samples: FloatArray, language: str | None) -> None:
        length_ms = len(samples) // SAMPLES_PER_MS
        if length_ms > self.max_ms:
            raise ConfigError(
                "recording_too_long",
                f"A recording of {length_ms / 1000:.0f} s does not fit into the model at once.",
                f"Cut it into parts of {self.max_ms // 1000} s or less, each with its own label.",
            )
        if language is not None and self.languages and language not in self.languages:
            raise ConfigError(
                "unknown_language",
                f"The model does not know the language {language!r}.",
                f"Use one of {', '.join(sorted(self.languages))}.",
            )

    def _encode(self, samples: FloatArray) -> CrossCache:
        network = self._model.network
        mel = IncrementalLogMel(self._model.mel_filters)
        mel.append(torch.from_numpy(samples))
        n_slots = max(1, len(samples) // SLOT_SAMPLES)
        n_all = min(n_slots + self._padding_slots, network.dims.max_source_positions)
        return network.cross_cache(network.encode(mel.features(2 * n_all)), n_slots)

    def _detect(self, cross: CrossCache) -> str | None:
        known = self._model.text.language_ids
        if not known:
            return None
        logits = self._decoder().language_logits(cross, list(known.values()))
        return list(known)[int(np.argmax(logits))]

    def _decoder(self) -> DraftDecoder:
        return DraftDecoder(self._model.network, self._model.text, self._model.suppressed)

    def _spell(
        self,
        start: list[int],
        cross: CrossCache,
        language: str | None,
        text: str | None,
        words: Sequence[TimedWord],
    ) -> list[_SpeltWord]:
        vocabulary = self._model.text
        if words:
            space = "" if language in UNSPACED_LANGUAGES else " "
            return [
                _SpeltWord(word.text, tuple(tokens), (word.start_ms, word.end_ms))
                for word in words
                if (tokens := vocabulary.encode(space + word.text.strip()))
            ]
        if text is None:
            tokens = self._decoder().decode(start, 0, [], cross).tokens
        else:
            tokens = vocabulary.encode(" " + text.strip())
        return [_SpeltWord(w.text, w.tokens) for w in vocabulary.words(tokens, language)]

    def _say(
        self, start: list[int], tokens: list[int], cross: CrossCache
    ) -> tuple[FloatArray, NDArray[np.float32]]:
        """Return the attention with which the tokens and the end are predicted, and their log p."""
        network = self._model.network
        n_rows = len(tokens) + 1
        limit = network.dims.max_target_positions - len(start)
        if n_rows > limit:
            raise ConfigError(
                "text_too_long",
                f"A text of {len(tokens)} tokens does not fit into the model at once.",
                f"Cut the recording so that each part has {limit} tokens or fewer.",
            )
        own = SelfCache(network.dims, network.dtype)
        hidden, attention = network.decode([*start, *tokens], 0, own, cross)
        logits = network.logits(hidden[-n_rows:])[:-1]
        wanted = torch.tensor(tokens, dtype=torch.long)[:, None]
        log_probabilities = logits.gather(1, wanted)[:, 0] - logits.logsumexp(dim=-1)
        rows = attention[:, -n_rows:].reshape(*self.shape, n_rows, -1)
        return rows.numpy(), log_probabilities.numpy()


@dataclass(frozen=True, slots=True)
class _SpeltWord:
    text: str
    tokens: tuple[int, ...]
    time_ms: tuple[int, int] | None = None


def open_aligner(files: ModelFiles) -> WordAligner:
    """Return an aligner with a model's weights.

    Raises:
        WeightsError: The model is not a Whisper, or its files do not fit together.
    """
    try:
        config = json.loads((files.folder / "config.json").read_text("utf-8"))
        if config.get("model_type") == "whisper":
            return WordAligner(files.folder)
    except (AttributeError, KeyError, ValueError) as error:
        raise WeightsError(
            "weights_corrupt",
            f"The files of the model {files.name!r} do not fit together ({error}).",
            "Fetch the model again.",
        ) from error
    raise WeightsError(
        "unsupported_model",
        f"The model {files.name!r} cannot align words with audio.",
        "Use a Whisper model of any size, such as whisper-base.",
    )
