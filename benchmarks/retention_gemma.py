"""Gemma-3n as mode S needs it: any policy in the prefix, and what it held at each step."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.gemma3n_stream import Gemma3nStream, WindowOptions
from audiokv.models.gemma3n.prefix import Prefix, live_options, live_policy
from audiokv.models.gemma3n.tower import StreamingTower
from audiokv.models.weights import resolve_model
from audiokv.streaming.audio_cache import CacheOptions
from benchmarks.retention_held import CacheStep
from benchmarks.retention_policies import LIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from audiokv.models.base import Hypothesis, RecognizerInfo, RecognizerStream, StreamOptions
    from audiokv.models.gemma3n.gemma3n_stream import GemmaModel
    from audiokv.models.gemma3n.prefix import PrefixOptions
    from audiokv.models.gemma3n.speech_model import SpeechModel
    from audiokv.models.gemma3n.tower import TowerState
    from audiokv.streaming.policy.assembly import DriverOptions
    from benchmarks.retention_held import CacheLog
    from benchmarks.retention_policies import Variant
    from benchmarks.retention_streaming import CacheBound


class BoundedGemma:
    """Implements ``BoundedModel``.

    Args:
        name: Name or folder of the model; its own settings say which type it computes in.
    """

    n_together = 32

    def __init__(self, name: str) -> None:
        files = resolve_model(name)
        self.folder = files.folder
        self._inner = _OpenRecognizer(files.folder, files.name)
        speech = self._inner.model.speech
        self.tower = TowerOnce(speech.tower)
        speech.tower = self.tower  # on this object alone
        self.slot_bytes = slot_bytes(speech)

    @property
    def info(self) -> RecognizerInfo:
        """What the model is and can do."""
        return self._inner.info

    def open_stream(
        self, options: StreamOptions, bound: CacheBound | None, log: CacheLog
    ) -> _MeasuredStream:
        """Return a stream with its prefix in a bound."""
        window = WindowOptions(cache=CacheOptions(bound.budget_slots if bound else None))
        stream = _MeasuredStream(self._inner.model, options, window)
        stream.watch(bound, log)
        return stream

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows, all in shared passes."""
        heard = self._inner.decode(streams)
        for stream in streams:
            if isinstance(stream, _MeasuredStream):
                stream.note_step()
        return heard

    def forget_audio(self) -> None:
        """Let encoded audio go."""
        self.tower.forget()


def slot_bytes(speech: SpeechModel) -> int:
    """Return the bytes of keys and values of one slot in all layers that hold every slot."""
    config = speech.text_config
    n_producers: int = config.num_hidden_layers - config.num_kv_shared_layers
    n_layers = sum(index < n_producers for index in speech.full_attention_layers)
    n_numbers: int = config.num_key_value_heads * config.head_dim
    return 2 * n_layers * n_numbers * speech.dtype.itemsize


class TowerOnce(StreamingTower):
    """A tower that encodes the same audio after the same audio only once, whoever asks.

    Streams of one clip hear the same whatever their policy, and encoding is a third of the work.

    Args:
        tower: The model's own.

    Attributes:
        n_encoded: How often something was encoded.
    """

    def __init__(self, tower: StreamingTower) -> None:
        vars(self).update(vars(tower))
        self.n_encoded = 0
        self.forget()

    def forget(self) -> None:
        """Let go what was encoded."""
        self._starts: dict[int, TowerState] = {}
        self._advanced: dict[tuple[int, bytes], tuple[torch.Tensor, TowerState]] = {}
        self._finished: dict[int, torch.Tensor] = {}
        self._known: list[TowerState] = []  # so that no other state gets the id of one of these

    def start(self, batch: int = 1) -> TowerState:
        """Return the state before any audio, always the same one."""
        if batch not in self._starts:
            self._starts[batch] = super().start(batch)
        return self._starts[batch]

    def advance(self, state: TowerState, mel: torch.Tensor) -> tuple[torch.Tensor, TowerState]:
        """Encode the next mel frames, or return what is known of them."""
        key = (id(state), hashlib.sha1(mel.cpu().numpy().tobytes(), usedforsecurity=False).digest())
        if key not in self._advanced:
            self._known.append(state)
            self._advanced[key] = super().advance(state, mel)
            self.n_encoded += 1
        return self._advanced[key]

    def finish(self, state: TowerState) -> torch.Tensor:
        """Return the slots that are due if the audio ends here."""
        if id(state) not in self._finished:
            self._known.append(state)
            self._finished[id(state)] = super().finish(state)
            self.n_encoded += 1
        return self._finished[id(state)]

    def advance_each(
        self, states: Sequence[TowerState], mels: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, TowerState]]:
        """Encode likewise for several streams."""
        return [self.advance(state, mel) for state, mel in zip(states, mels, strict=True)]

    def finish_each(self, states: Sequence[TowerState]) -> list[torch.Tensor]:
        """Finish likewise for several streams."""
        return [self.finish(state) for state in states]


class _OpenRecognizer(Gemma3nRecognizer):
    """A recogniser that hands out what its streams are made of."""

    @property
    def model(self) -> GemmaModel:
        """What all streams share."""
        return self._model


class _MeasuredStream(Gemma3nStream):
    """The live stream, with another policy in its prefix and its steps written down."""

    _log: CacheLog

    def watch(self, bound: CacheBound | None, log: CacheLog) -> None:
        """Hold the prefix in a bound and write down every step; before any audio is heard."""
        self._log = log
        if bound is not None:
            self._prefix = _VariantPrefix(
                self._model.speech, self._prefix.options, bound.variant, self._model.slot_ms
            )

    def note_step(self) -> None:
        """Write down what the decoder was given just now: tails are rolled back."""
        cache = self._prefix.cache
        tensors = [
            part
            for layer in cache.producers
            for store in layer.stores
            for part in (store.keys(), store.values())
        ]
        n_bytes = sum(part.numel() * part.element_size() for part in tensors)
        self._log.steps.append(CacheStep(cache.ledger.seen, cache.held, n_bytes))


class _VariantPrefix(Prefix):
    """The live prefix with another policy, or other parameters of one."""

    def __init__(
        self, speech: SpeechModel, options: PrefixOptions, variant: Variant, slot_ms: int
    ) -> None:
        super().__init__(speech, options)
        driver_options = _changed(live_options(options.profile), variant.options)
        self.cache = self._open_cache(live_policy(variant.policy(slot_ms)), driver_options)


def _changed(options: DriverOptions, variant: DriverOptions) -> DriverOptions:
    """Return the options with what a variant changes about the benchmark's."""
    names = [field.name for field in fields(variant)]
    changes = {
        name: getattr(variant, name)
        for name in names
        if getattr(variant, name) != getattr(LIVE, name)
    }
    return replace(options, **changes)
