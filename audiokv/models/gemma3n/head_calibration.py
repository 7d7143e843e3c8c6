"""Lets a Gemma-3n say what is in a recording whose words are timed, and reads its heads.

For ``audiokv calibrate``: which heads of the text model look at the slots of a word while its
tokens are predicted. These are its ``alignment_heads``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.base import StreamOptions
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions
from audiokv.models.gemma3n.slot_source import SlotSource
from audiokv.models.gemma3n.speech_model import Inputs
from audiokv.models.gemma3n.tail_decoding import TailDecoder, TailRequest
from audiokv.models.whisper.word_alignment import AlignedSpeech, AlignedWord
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.marker import Talker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.models.base import FloatArray
    from audiokv.models.recordings import TimedWord

# A word is recognised where its end was heard, so heads look up to so far behind it.
_LATE_MS = 480
_MAX_MS = 30_000


class HeadReader:
    """Implements ``Aligner`` for ``audiokv calibrate`` with a Gemma-3n.

    Args:
        folder: The model.

    Attributes:
        slot_ms: Length of a slot.
        top_k: Most attended slots that count: as long a time as with Whisper.
        shape: Layers and query heads; heads of sliding layers score nothing.
        max_ms: Longest recording.
    """

    def __init__(self, folder: Path) -> None:
        model = Gemma3nRecognizer(folder, folder.name)._model  # noqa: SLF001  one package's own
        self._model = model
        config = model.speech.text_config
        self.slot_ms = model.slot_ms
        self.top_k = max(1, _LATE_MS // model.slot_ms)
        self.shape = (int(config.num_hidden_layers), int(config.num_attention_heads))
        self.max_ms = _MAX_MS

    @torch.inference_mode()
    def align(
        self,
        samples: FloatArray,
        language: str | None = None,
        text: str | None = None,  # noqa: ARG002  without times it says nothing about heads
        words: Sequence[TimedWord] = (),
    ) -> AlignedSpeech:
        """Say words whose times are known over their audio.

        Args:
            samples: Shape (n,), 16 kHz mono.
            language: ISO 639-1 code, or None.
            text: Not used.
            words: What is said, in order.

        Raises:
            ConfigError: There are no times, or the vocabulary splits the words otherwise.
        """
        if not words:
            raise ConfigError(
                "word_times_missing",
                "A recording for a Gemma-3n has no times of its words.",
                "Give a manifest.jsonl with the times of the words; the model has none of its own.",
            )
        model = self._model
        tokens = model.vocabulary.encode(" ".join(word.text for word in words))
        found = model.vocabulary.words([], tokens, language)
        if len(found) != len(words):
            raise ConfigError(
                "words_misfit",
                f"{len(words)} words of a recording are {len(found)} in the model's vocabulary.",
                "Write the words as the model does, one a label, or leave the recording out.",
            )
        attention = self._attention(samples, language, tokens)
        aligned, first = [], 0
        for word, piece in zip(words, found, strict=True):
            end = first + len(piece.tokens)
            aligned.append(
                AlignedWord(word.text, first, end, word.start_ms, word.end_ms + _LATE_MS, 1.0)
            )
            first = end
        return AlignedSpeech(tuple(aligned), attention)

    def _attention(
        self, samples: FloatArray, language: str | None, tokens: list[int]
    ) -> FloatArray:
        """Return the attention of all heads, shape (layers, heads, tokens + 1, slots)."""
        model = self._model
        frame = model.layout.frame(StreamOptions(language))
        prefix = Prefix(model.speech, PrefixOptions(CacheOptions(), self.slot_ms))
        prefix.append_text(frame.opening, 0, is_prompt=True)
        prefix.append_text(frame.before_audio, 0)
        source = SlotSource(model.speech, model.front_end, 0)
        whole = source.push(samples, Talker(None, language))
        if whole:
            prefix.append(Inputs.joined([slot for slot, _ in whole]), [mark for _, mark in whole])
        rest = source.unfinished()
        request = TailRequest(
            audio=Inputs.joined(rest) if rest else None,
            n_own_slots=sum(map(len, rest)),
            after_audio=frame.after_audio,
            forced=tokens,
            draft=(),
            max_tokens=1,
            n_spoken_slots=0,
        )
        decoder = TailDecoder(model.speech, frame.stops, frozenset())
        made = decoder.decode(prefix, request, prefix.audio_rows(0)).attention
        full = model.speech.full_attention_layers
        by_layer = made.reshape(len(full), self.shape[1], *made.shape[1:])
        attention = np.zeros((*self.shape, *made.shape[1:]), np.float32)
        attention[full] = by_layer
        return attention[:, :, : len(tokens) + 1]
