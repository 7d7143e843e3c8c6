"""Whisper as mode S needs it: any policy, measured steps, and each window encoded only once."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from audiokv.models.load import bound_kernel_caches
from audiokv.models.weights import resolve_model
from audiokv.models.whisper.alignment import SLOT_MS
from audiokv.models.whisper.audio_budget import AudioBudget
from audiokv.models.whisper.decoding import DraftDecoder
from audiokv.models.whisper.recognizer import WhisperRecognizer
from audiokv.models.whisper.stream import WhisperStream, WindowOptions
from audiokv.streaming.policy.assembly import open_driver
from audiokv.streaming.policy.protocol import MergingPolicy
from benchmarks.retention_held import CacheStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.models.base import Hypothesis, RecognizerInfo, RecognizerStream, StreamOptions
    from audiokv.models.whisper.cross_cache import CrossCache
    from audiokv.models.whisper.decoding import Decoded, _Memory
    from audiokv.models.whisper.stream import WhisperModel
    from benchmarks.retention_held import CacheLog
    from benchmarks.retention_streaming import CacheBound


class EncodeOnce:
    """Encodes every window once, whoever asks.

    What the encoder says does not depend on the policy, and policies mostly see the same windows;
    encoding is most of the work.

    Args:
        encode: The network's own method.
    """

    def __init__(self, encode: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._encode = encode
        self._known: dict[bytes, torch.Tensor] = {}
        self.n_encoded = 0

    def __call__(self, mel: torch.Tensor) -> torch.Tensor:
        """Return the encoded window."""
        key = hashlib.sha1(mel.numpy().tobytes(), usedforsecurity=False).digest()
        if key not in self._known:
            self._known[key] = self._encode(mel)
            self.n_encoded += 1
        return self._known[key]

    def forget(self) -> None:
        """Let all windows go."""
        self._known.clear()


class BoundedWhisper:
    """Implements ``BoundedModel``.

    Args:
        name: Name or folder of the model.
        dtype: Type of the matrix products; the same in all runs that are compared.
    """

    n_together = 1  # they would take turns

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        bound_kernel_caches(os.environ)
        files = resolve_model(name)
        self.folder = files.folder
        self._inner = _OpenRecognizer(files.folder, files.name, dtype)
        network = self._inner.model.network
        self.encoder = EncodeOnce(network.encode)
        self.decoded = DecodeOnce()
        network.encode = self.encoder  # type: ignore[method-assign]  # on this object alone
        dims = network.dims
        self.slot_bytes = 2 * dims.n_decoder_layers * dims.d_model * dtype.itemsize

    @property
    def info(self) -> RecognizerInfo:
        """What the model is and can do."""
        return self._inner.info

    def open_stream(
        self, options: StreamOptions, bound: CacheBound | None, log: CacheLog
    ) -> _MeasuredStream:
        """Return a stream with its audio cache in a bound."""
        stream = _MeasuredStream(self._inner.model, options, self._inner.window)
        stream.watch(self.decoded, log)
        if bound is not None:
            stream.hold_within(bound)
        return stream

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise the windows."""
        return self._inner.decode(streams)

    def forget_audio(self) -> None:
        """Let encoded windows and what was decoded from them go."""
        self.encoder.forget()
        self.decoded.known.clear()


class _OpenRecognizer(WhisperRecognizer):
    """A recogniser that hands out what its streams are made of."""

    @property
    def model(self) -> WhisperModel:
        """What all streams share."""
        return self._model

    @property
    def window(self) -> WindowOptions:
        """Sizes of the window."""
        return self._window


class _MeasuredStream(WhisperStream):
    """The live stream, with another policy in its audio cache and its steps written down."""

    def __init__(self, model: WhisperModel, options: StreamOptions, window: WindowOptions) -> None:
        super().__init__(model, options, window)
        self._model_parts = model

    def watch(self, decoded: DecodeOnce, log: CacheLog) -> None:
        """Write down every step from now on."""
        self._decoder = _LoggingDecoder(self._model_parts, self._window, decoded, log)

    def hold_within(self, bound: CacheBound) -> None:
        """Hold the audio in a bound; before any is heard."""
        self._holder = _VariantBudget(bound)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was decoded, and the state it left the decoder in."""

    decoded: Decoded
    memory: _Memory | None
    keys: torch.Tensor
    values: torch.Tensor


class DecodeOnce:
    """Remembers what was decoded from the same cache, context and draft.

    Until there is more audio than budget, streams under different policies are the same.

    Attributes:
        known: By everything the result follows from.
        n_decoded: How often something was decoded.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], _Known] = {}
        self.n_decoded = 0


class _LoggingDecoder(DraftDecoder):
    """Writes down what the cache held whenever text is decoded from it."""

    def __init__(
        self, model: WhisperModel, window: WindowOptions, shared: DecodeOnce, log: CacheLog
    ) -> None:
        super().__init__(model.network, model.text, model.suppressed)
        self._window = window
        self._limit_slots = model.network.dims.max_source_positions
        self._shared = shared
        self._log = log

    def decode(
        self,
        context: list[int],
        n_forced: int,
        draft: list[int],
        cross: CrossCache,
        n_settled: int = 0,
    ) -> Decoded:
        """Continue a context greedily."""
        if n_settled:  # follows from what was decoded before, too
            decoded = super().decode(context, n_forced, draft, cross, n_settled)
            self._shared.n_decoded += 1
        else:
            decoded = self._decoded_once(context, n_forced, draft, cross)
        self._log.steps.append(self._measured(cross, is_cut=not decoded.is_complete))
        return decoded

    def _decoded_once(
        self, context: list[int], n_forced: int, draft: list[int], cross: CrossCache
    ) -> Decoded:
        own = self._model.own
        key = (_digest(cross), tuple(context), n_forced, tuple(draft))
        known = self._shared.known.get(key)
        if known is None:
            decoded = super().decode(context, n_forced, draft, cross)
            n_tokens = len(context) + len(decoded.tokens) + 1
            keys, values = own.keys[:, :, :n_tokens].clone(), own.values[:, :, :n_tokens].clone()
            known = _Known(decoded, self._memory, keys, values)
            self._shared.known[key] = known
            self._shared.n_decoded += 1
        else:
            own.keys[:, :, : known.keys.shape[2]] = known.keys
            own.values[:, :, : known.values.shape[2]] = known.values
            self._memory = known.memory
        return known.decoded

    def _measured(self, cross: CrossCache, *, is_cut: bool) -> CacheStep:
        present = cross.n_audio_slots
        padding = min(self._window.padding_ms // SLOT_MS, self._limit_slots - present)
        held = cross.keys[0].shape[1] - padding
        audio = [kept[:, :held] for kept in (*cross.keys, *cross.values)]
        n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in audio)
        return CacheStep(present, held, n_bytes, is_cut)


def _digest(cross: CrossCache) -> tuple[object, ...]:
    """Return what tells a cache from others."""
    first = cross.keys[0].contiguous().view(torch.uint8).numpy().tobytes()
    held = None if cross.held is None else cross.held.tobytes()
    mass = None if cross.log_mass is None else cross.log_mass.numpy().tobytes()
    return hashlib.sha1(first, usedforsecurity=False).digest(), held, mass, cross.n_audio_slots


class _VariantBudget(AudioBudget):
    """The live audio cache with another policy, or other parameters of one."""

    def __init__(self, bound: CacheBound) -> None:
        variant = bound.variant
        name = "keydiff" if variant.needs_keys else "full"
        super().__init__(name, bound.budget_slots, slot_bytes=1)
        policy = variant.policy(SLOT_MS)
        self.driver = open_driver(policy, bound.budget_slots, SLOT_MS, variant.options)
        self._max_merged = policy.max_merged_slots if isinstance(policy, MergingPolicy) else 1
