"""Tiny random models of the classes the live loop serves, and what these classes say themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from transformers import Gemma4AudioFeatureExtractor

from audiokv.models.audio_llm.live_loop import LiveLoop, LoopOptions
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions
from audiokv.models.gemma3n.prompt_layout import Frame
from audiokv.models.gemma3n.slot_source import SlotSource
from audiokv.models.gemma4.gemma4_speech import Gemma4Speech
from audiokv.models.gemma4.mel_in_stream import Gemma4FrontEnd
from audiokv.models.qwen_omni.qwen_omni_speech import QwenOmniSpeech
from audiokv.models.qwen_omni.window_source import WindowSource
from audiokv.models.whisper.features import IncrementalLogMel, mel_filters
from audiokv.streaming.audio_cache import CacheOptions
from tests.models.gemma4.conftest import tiny_gemma4
from tests.models.qwen_omni.conftest import N_MELS, WINDOW_FRAMES, tiny_thinker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.audio_llm.hearing_model import AudioSource, HearingModel

    Samples = NDArray[np.float32]

BOS, BOA, STOP = 2, 3, 1


class Family(Protocol):
    """One class of model."""

    frame: Frame
    unspoken: frozenset[int]
    slot_ms: int
    n_layers: int

    @property
    def model(self) -> HearingModel: ...

    def source(self, at_ms: int) -> AudioSource: ...

    def class_logits(self, clips: Sequence[Samples], texts: Sequence[list[int]]) -> torch.Tensor:
        """Logits by transformers' own class, without a cache, on clips each with its text.

        Of the last text: those that predict each of its tokens and the one behind it.
        """


def _ids(
    frame: Frame, audio: int, n_slots: Sequence[int], texts: Sequence[list[int]]
) -> torch.Tensor:
    ids = list(frame.opening)
    for n, text in zip(n_slots, texts, strict=True):
        ids += [*frame.before_audio, *[audio] * n, *frame.after_audio, *text, *frame.between]
    return torch.tensor([ids[: len(ids) - len(frame.between)]])


class Gemma4Family:
    """Gemma 4 without vision."""

    AUDIO, EOA = 57, 56

    def __init__(self) -> None:
        self.frame = Frame((BOS,), (BOA,), (self.EOA,), (STOP,), frozenset({STOP}))
        self.unspoken = frozenset({0, BOS, BOA, self.EOA, self.AUDIO, 58, 59})
        self.slot_ms, self.n_layers = 40, 6
        self.model = Gemma4Speech(tiny_gemma4())
        self._front_end = Gemma4FrontEnd(Gemma4AudioFeatureExtractor())
        self._own = tiny_gemma4()

    def source(self, at_ms: int) -> AudioSource:
        return SlotSource(self.model, self._front_end, at_ms)

    @torch.no_grad()
    def class_logits(self, clips: Sequence[Samples], texts: Sequence[list[int]]) -> torch.Tensor:
        made = Gemma4AudioFeatureExtractor()(
            list(clips), padding="longest", truncation=False, pad_to_multiple_of=None
        )
        mel = torch.from_numpy(np.stack(made["input_features"]))
        masks = torch.from_numpy(np.stack(made["input_features_mask"]))
        assert bool(masks.all()), "clips of one length, or padding would leak"
        n_slots = [-(-mel.shape[1] // 4)] * len(clips)
        ids = _ids(self.frame, self.AUDIO, n_slots, texts)
        out = self._own(input_ids=ids, input_features=mel, input_features_mask=masks)
        logits: torch.Tensor = out.logits[0, -len(texts[-1]) - 1 :]
        return logits


def front_end_by_window(clip: Samples, filters: torch.Tensor) -> torch.Tensor:
    """Whisper's front end with the floor that the loudest bin up to each window's end gives."""
    mel = IncrementalLogMel(filters)
    mel.append(torch.from_numpy(clip))
    parts: list[torch.Tensor] = []
    left, loudest = len(clip) // 160, -np.inf
    while left:
        n_frames = min(left, WINDOW_FRAMES)
        part = mel.features(n_frames)
        loudest = max(loudest, float(part.max()))
        parts.append(part.clamp(min=loudest - 2.0))
        mel.drop(n_frames)
        left -= n_frames
    return torch.cat(parts, dim=1)


class QwenFamily:
    """The thinker of Qwen3-Omni."""

    AUDIO = 61

    def __init__(self) -> None:
        self.frame = Frame((BOS, 5), (BOA,), (56, 6), (STOP,), frozenset({STOP}))
        self.unspoken = frozenset({0, BOS, BOA, 56, 60, 61, 62, 63})
        self.slot_ms, self.n_layers = 80, 2
        self.model = QwenOmniSpeech(tiny_thinker())
        self._filters = mel_filters(N_MELS)
        self._own = tiny_thinker()

    def source(self, at_ms: int) -> AudioSource:
        return WindowSource(self.model, self._filters, at_ms)

    def _mel(self, clip: Samples) -> torch.Tensor:
        """The front end at once; see ``front_end_by_window``."""
        return front_end_by_window(clip, self._filters)

    @torch.no_grad()
    def class_logits(self, clips: Sequence[Samples], texts: Sequence[list[int]]) -> torch.Tensor:
        mel = torch.stack([self._mel(clip) for clip in clips])
        chunks, rest = divmod(mel.shape[2], 100)
        n_slots = [13 * chunks + -(-rest // 8)] * len(clips)
        ids = _ids(self.frame, self.AUDIO, n_slots, texts)
        out = self._own(
            input_ids=ids,
            input_features=mel,
            feature_attention_mask=torch.ones((len(clips), mel.shape[2]), dtype=torch.long),
            attention_mask=torch.ones_like(ids),
        )
        logits: torch.Tensor = out.logits[0, -len(texts[-1]) - 1 :]
        return logits


FAMILIES: dict[str, type[Gemma4Family | QwenFamily]] = {
    "gemma4": Gemma4Family,
    "qwen_omni": QwenFamily,
}


def open_loop(
    family: Family,
    cache: CacheOptions | None = None,
    *,
    max_tokens: int = 8,
    tail_slots: int = 80,
    max_positions: int | None = None,
) -> LiveLoop:
    """A loop over a stream of its own."""
    options = PrefixOptions(
        cache or CacheOptions(), family.slot_ms, tail_slots, max_positions=max_positions
    )
    return LiveLoop(
        family.model,
        Prefix(family.model, options),
        family.source,
        LoopOptions(family.frame, family.unspoken, max_tokens),
    )


def greedy(family: Family, clip: Samples, text: list[int], n_tokens: int) -> list[int]:
    """The text's likeliest continuation by the class itself, up to its end."""
    said = list(text)
    while len(said) - len(text) < n_tokens:
        logits = family.class_logits([clip], [said])[-1].clone()
        logits[list(family.unspoken)] = -torch.inf
        token = int(logits.argmax())
        if token == STOP:
            break
        said.append(token)
    return said[len(text) :]


def tensors_of(loop: LiveLoop) -> list[Any]:
    """Every key and value of every layer that holds any."""
    cache = loop.prefix.cache
    held = [
        part.clone()
        for layer in cache.producers
        for store in layer.stores
        for part in (store.keys(), store.values())
    ]
    for sliding in cache._sliding:
        held += [sliding._layer.keys.clone(), sliding._layer.values.clone()]
    return held
