"""Whole clips under many caches: encoded once, and decoded for all caches at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional

from audiokv.models.weights import resolve_model
from audiokv.models.whisper.alignment import SLOT_MS
from audiokv.models.whisper.cross_cache import CrossCache, Holding, nearest_owners
from audiokv.models.whisper.decoding import is_repeating
from audiokv.models.whisper.features import IncrementalLogMel
from audiokv.models.whisper.network import SelfCache
from audiokv.models.whisper.recognizer import WhisperRecognizer
from benchmarks.retention_network import BatchedNetwork, OwnAudio, RowTensors, SharedAudio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.whisper.stream import WhisperModel
    from audiokv.models.whisper.text import WhisperText
    from benchmarks.retention_network import Audio
    from benchmarks.retention_speech import Clip

SLOT_SAMPLES = SLOT_MS * 16
PADDING_SLOTS = 100  # silence behind the audio, as in the live stream; held and not counted
_TOKENS_PER_SECOND = 12
_SPARE_TOKENS = 16


class RowCache(Protocol):
    """The audio cache of one row.

    Attributes:
        is_held: Which head holds which slot, shape (layers, heads, audio slots).
    """

    @property
    def is_held(self) -> NDArray[np.bool_]:
        """See above."""

    def make_room(self, attention: NDArray[np.float32]) -> bool:
        """Make room for one more text token before it is run.

        Args:
            attention: With which it was predicted, shape (layers, heads, audio slots).

        Returns:
            Whether there is room.
        """


@dataclass(frozen=True, slots=True)
class HeardClip:
    """A clip that was encoded, and what the decoder makes of the prompt with all of the audio.

    Attributes:
        encoded: What the encoder made of it and of the padding, shape (slots, d_model).
        cross: Keys and values of all slots.
        prompt: Start tokens.
        attention: Of the prompt's tokens, shape (layers, heads, tokens, audio slots).
    """

    encoded: torch.Tensor
    cross: CrossCache
    prompt: list[int]
    attention: NDArray[np.float32]

    @property
    def n_slots(self) -> int:
        """How many slots are audio."""
        return self.cross.n_audio_slots


@dataclass(frozen=True, slots=True)
class Decoded:
    """A row's text.

    Attributes:
        tokens: Its tokens, without the end.
        is_complete: Whether the model itself ended it.
    """

    tokens: list[int]
    is_complete: bool


class BatchedWhisper:
    """Decodes a clip under many caches.

    Args:
        name: Name or folder of the model.
        dtype: Type of the matrix products.
    """

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        files = resolve_model(name)
        self._shared = _Parts(files.folder, files.name, dtype).model
        dims = self._shared.network.dims
        every = [(i, j) for i in range(dims.n_decoder_layers) for j in range(dims.n_decoder_heads)]
        tensors: dict[str, torch.Tensor] = {}
        for part in sorted(files.folder.glob("model*.safetensors")):
            tensors.update(load_file(part))
        self.network = BatchedNetwork(tensors, dims, dtype, every)
        self.heads = (dims.n_decoder_layers, dims.n_decoder_heads)
        self.slot_bytes = 2 * dims.n_decoder_layers * dims.d_model * dtype.itemsize
        text = self._shared.text
        self._penalty = torch.zeros(dims.n_vocabulary)
        self._penalty[torch.tensor(self._shared.suppressed, dtype=torch.long)] = -torch.inf
        self._penalty[text.n_text_tokens + 1 :] = -torch.inf
        self._first_penalty = self._penalty.clone()
        self._first_penalty[torch.tensor([*text.blank, text.end_of_text])] = -torch.inf

    @property
    def vocabulary(self) -> WhisperText:
        """The model's vocabulary."""
        return self._shared.text

    @torch.inference_mode()
    def hear(self, clip: Clip) -> HeardClip:
        """Encode a clip and run the prompt over it."""
        mel = IncrementalLogMel(self._shared.mel_filters)
        mel.append(torch.from_numpy(clip.samples))
        dims = self.network.dims
        n_slots = min(len(clip.samples) // SLOT_SAMPLES, dims.max_source_positions - PADDING_SLOTS)
        encoded = self.network.encode(mel.features(2 * (n_slots + PADDING_SLOTS)))
        cross = self.network.cross_cache(encoded, n_slots)
        language = clip.language if self._shared.text.language_ids else None
        prompt = self._shared.text.start_tokens(language)
        _, seen = self.network.decode(prompt, 0, SelfCache(dims, self.network.dtype), cross)
        by_head = seen.view(dims.n_decoder_layers, dims.n_decoder_heads, len(prompt), -1)
        return HeardClip(encoded, cross, prompt, by_head[..., :n_slots].numpy())

    @torch.inference_mode()
    def merged(self, heard: HeardClip, places: NDArray[np.intp], max_merged: int) -> CrossCache:
        """Return a clip's cache whose held slots stand for others too, see ``MergingPolicy``.

        Args:
            heard: The clip.
            places: The held slots, rising.
            max_merged: Most slots that one may stand for.
        """
        n_slots = heard.n_slots
        holding = Holding(places, nearest_owners(places, n_slots, max_merged))
        found = self.network.cross_cache(heard.encoded, n_slots, holding)
        assert found.log_mass is not None
        log_mass = torch.zeros(len(heard.encoded))
        log_mass[torch.from_numpy(places)] = found.log_mass[: len(places)]
        whole = [_spread(part, places, n_slots) for part in (*found.keys, *found.values)]
        n_layers = len(found.keys)
        return CrossCache(whole[:n_layers], whole[n_layers:], n_slots, None, log_mass)

    def token_limit(self, heard: HeardClip) -> int:
        """Return how much text a clip may have, as in the live stream."""
        wanted = int(heard.n_slots * SLOT_MS / 1000 * _TOKENS_PER_SECOND) + _SPARE_TOKENS
        return min(wanted, self.network.dims.max_target_positions - len(heard.prompt) - 1)

    @torch.inference_mode()
    def decode(self, heard: HeardClip, rows: Sequence[RowCache]) -> list[Decoded]:
        """Decode greedily under each row's cache, the prompt included.

        Args:
            heard: The clip.
            rows: What each row holds.

        Returns:
            A text for each row.
        """
        return self._decode(heard, rows, SharedAudio(heard.cross)) if rows else []

    @torch.inference_mode()
    def decode_merged(
        self, heard: HeardClip, rows: Sequence[RowCache], merged: Sequence[CrossCache]
    ) -> list[Decoded]:
        """Decode likewise, each row from a clip of its own, see ``merged``."""
        scale = (self.network.dims.d_model // self.network.dims.n_decoder_heads) ** -0.5
        return self._decode(heard, rows, OwnAudio(merged, scale)) if rows else []

    def _decode(self, heard: HeardClip, rows: Sequence[RowCache], audio: Audio) -> list[Decoded]:
        texts = [_Text(row, self.token_limit(heard), self._shared.text.end_of_text) for row in rows]
        n_tokens = len(heard.prompt) + self.token_limit(heard)
        own = RowTensors.empty(self.network.dims, self.network.dtype, self._held(rows), n_tokens)
        logits, seen = torch.empty(0), torch.empty(0)
        for position, token in enumerate(heard.prompt):
            prompt = torch.full((len(rows),), token)
            logits, seen = self.network.step(prompt, position, own, audio)
        logits += self._first_penalty
        active = texts
        for position in range(len(heard.prompt), n_tokens + 1):
            attention = seen[..., : heard.n_slots].numpy()
            going = [
                at
                for at, (text, token) in enumerate(
                    zip(active, logits.argmax(dim=-1).tolist(), strict=True)
                )
                if text.take(token, attention[:, :, at])
            ]
            if not going:
                break
            active = [active[at] for at in going]
            audio.go_on(going)
            own.go_on(going, self._held([text.row for text in active]))
            tokens = torch.tensor([text.tokens[-1] for text in active])
            logits, seen = self.network.step(tokens, position, own, audio)
            logits += self._penalty
        return [Decoded(text.tokens, text.is_complete) for text in texts]

    def text(self, tokens: list[int], language: str) -> str:
        """Return what tokens spell."""
        words = self._shared.text.words(tokens, language)
        return "".join(f"{' ' if word.space_before else ''}{word.text}" for word in words).strip()

    def _held(self, rows: Sequence[RowCache]) -> torch.Tensor:
        """Return what the rows hold, the padding included, shape (layers, heads, rows, slots)."""
        audio = torch.from_numpy(np.stack([row.is_held for row in rows], axis=2))
        return functional.pad(audio, (0, PADDING_SLOTS), value=True)


def _spread(part: torch.Tensor, places: NDArray[np.intp], n_slots: int) -> torch.Tensor:
    """Put the held slots at their places in the clip, zeros between and the padding behind."""
    whole = part.new_zeros(part.shape[0], n_slots + PADDING_SLOTS, part.shape[2])
    whole[:, torch.from_numpy(places)] = part[:, : len(places)]
    whole[:, n_slots:] = part[:, len(places) :]
    return whole


class _Text:
    """A row's text as it grows."""

    def __init__(self, row: RowCache, limit: int, end_of_text: int) -> None:
        self.row = row
        self.tokens: list[int] = []
        self.is_complete = False
        self._limit = limit
        self._end_of_text = end_of_text

    def take(self, token: int, attention: NDArray[np.float32]) -> bool:
        """Take the next token and what it was predicted from; false where the text ends here."""
        if token == self._end_of_text:
            self.is_complete = True
            return False
        self.tokens.append(token)
        if len(self.tokens) >= self._limit or is_repeating(self.tokens):
            return False
        return self.row.make_room(attention)


class _Parts(WhisperRecognizer):
    """Hands out what a recogniser is made of."""

    @property
    def model(self) -> WhisperModel:
        """What its streams share."""
        return self._model
