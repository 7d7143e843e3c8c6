"""The passes that streams of a Gemma-3n share, timed one by one, plain, captured or compiled.

What is timed is what the live path runs: the same encoder, workspaces, passes and choice of
tokens. Only the streams' histories are made up: their caches are filled with random keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from audiokv.models.gemma3n.batch_forward import PassInputs, SharedForward, read_into
from audiokv.models.gemma3n.batch_requests import ReadTail
from audiokv.models.gemma3n.batch_shapes import FixedShapes
from audiokv.models.gemma3n.batch_workspace import LayerMap, Workspace
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions
from audiokv.models.gemma3n.tail_decoding import TailDecoder, choose_each
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.marks import SlotMarks

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.models.gemma3n.batch_forward import Heads, PassOutputs
    from audiokv.models.gemma3n.speech_model import Inputs, SpeechModel
    from audiokv.models.gemma3n.tower import TowerState
    from benchmarks.budget_layers import DeviceClock

    Pass = Callable[[PassInputs], PassOutputs]

SLOT_MS = 160
_N_WARM_UP = 2


class Mode(StrEnum):
    """How a pass is started."""

    EAGER = "eager"
    GRAPH = "graph"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class StepSize:
    """What each stream has in a step.

    Attributes:
        step_ms: Audio.
        new_slots: Slots that became whole.
        tail_tokens: Slots that are not whole, end of audio, committed text and draft, together.
        draft_tokens: How many of them are draft.
        token_passes: Passes of one token each after the tail.
        n_heads: Heads whose attention is wanted for word times.
    """

    step_ms: int = 200
    new_slots: int = 2
    tail_tokens: int = 40
    draft_tokens: int = 8
    token_passes: int = 2
    n_heads: int = 4


class SharedPasses:
    """Times the parts of a step of several streams.

    Args:
        speech: The model.
        n_streams: Streams that are due together.
        budget_slots: Slots that each holds.
        size: What each has in a step.
        mode: How passes are started.
    """

    def __init__(
        self,
        speech: SpeechModel,
        n_streams: int,
        budget_slots: int,
        size: StepSize,
        mode: Mode,
    ) -> None:
        self._speech = speech
        self._size = size
        self._mode = mode
        self._n_mels: int = speech.config.audio_config.input_feat_size
        self._layers = LayerMap.of(speech.text_config)
        self._forward = SharedForward(speech.language_model, self._layers)
        self._shapes = FixedShapes()
        self._prefixes = [_filled(speech, self._layers, budget_slots) for _ in range(n_streams)]
        n_sliding = min(budget_slots, self._layers.window - 1)
        self.sizes = (
            self._shapes.n_streams(n_streams),
            self._shapes.n_rows(budget_slots + size.tail_tokens),
            self._shapes.n_rows(n_sliding + size.tail_tokens),
        )
        weight = torch.empty(0, dtype=speech.dtype, device=speech.device)
        self._space = Workspace.empty(self._layers, self.sizes, weight)
        full = [layer for layer, _ in self._layers.readers]
        n_each = speech.text_config.num_attention_heads
        pairs = [(layer, head) for head in range(n_each) for layer in reversed(full)]
        self._decoder = TailDecoder(
            speech, frozenset({1}), frozenset(), tuple(pairs[: size.n_heads])
        )

    @property
    def session_nbytes(self) -> int:
        """What one stream's cache takes."""
        return self._prefixes[0].cache.nbytes

    @torch.inference_mode()
    def parts_ms(self, clock: DeviceClock, repeats: int) -> dict[str, list[float]]:
        """Return what each part of a step took, as often as it was timed."""
        size, n_streams = self._size, len(self._prefixes)
        caches = [prefix.cache for prefix in self._prefixes]
        lanes = list(range(n_streams))

        def timed(work: Callable[[], object]) -> list[float]:
            return clock.took_ms(work, repeats, _N_WARM_UP)

        heard = self._heard()
        found = {"encode": timed(lambda: self._encode(heard))}
        found["load"] = timed(lambda: self._space.load(caches))

        read = self._started(size.new_slots, None)
        found["read"] = timed(lambda: self._fetched(read, size.new_slots))
        self._space.load(caches)
        self._pass(read, size.new_slots)
        newest = [self._space.newest(lane, size.new_slots) for lane in lanes]
        found["keep"] = timed(lambda: self._keep(newest))

        tail = self._started(size.tail_tokens, self._decoder.heads)
        found["tail"] = timed(lambda: self._judged(tail, size.tail_tokens, size.draft_tokens + 1))
        token = self._started(1, self._decoder.heads)
        found["token"] = timed(lambda: self._judged(token, 1, 1))
        return found

    def _started(self, n_new: int, heads: Heads | None) -> Pass:
        """Return the pass for one shape, captured or compiled where that was asked for."""
        forward = self._forward
        space = self._space

        def run(inputs: PassInputs) -> PassOutputs:
            return forward(inputs, space.keys, space.values, heads)

        if self._mode is Mode.EAGER:
            return run
        space.load([prefix.cache for prefix in self._prefixes])
        inputs = self._inputs(n_new)
        if self._mode is Mode.GRAPH:
            return CapturedPass(run, inputs)
        compiled: Pass = torch.compile(run, fullgraph=True, dynamic=False)
        return CapturedPass(compiled, inputs) if self._speech.device.type == "cuda" else compiled

    def _inputs(self, n_new: int) -> PassInputs:
        lanes = range(len(self._prefixes))
        for lane in lanes:
            self._space.roll_back(lane)
        part = _positions(self._speech, n_new)
        return read_into(self._space, lanes, [part] * len(lanes), self._shapes.n_new(n_new))

    def _pass(self, run: Pass, n_new: int) -> PassOutputs:
        return run(self._inputs(n_new))

    def _fetched(self, run: Pass, n_new: int) -> torch.Tensor:
        return self._pass(run, n_new).received.cpu()

    def _judged(self, run: Pass, n_new: int, n_judged: int) -> None:
        """Run a pass of tails, fetch what the host wants to know, and choose tokens."""
        outputs = self._pass(run, n_new)
        outputs.received.cpu()
        n_audio = min(188, self._prefixes[0].held)
        outputs.weights[:, :, -n_new:, -n_audio:].contiguous().cpu()
        reads = []
        for lane, prefix in enumerate(self._prefixes):
            read = ReadTail(
                prefix,
                _EMPTY,
                self._decoder,
                is_first=True,
                n_judged=n_judged,
                n_rows=n_new,
                columns=np.arange(n_audio),
            )
            read.hidden = outputs.hidden[lane, -n_judged:]
            reads.append(read)
        choose_each(reads)

    def _keep(self, newest: list[dict[int, tuple[torch.Tensor, torch.Tensor]]]) -> None:
        shape = (len(self._layers.full), self._layers.n_key_heads)
        for prefix, states in zip(self._prefixes, newest, strict=True):
            n_rows = prefix.held + self._size.new_slots
            importance = np.full((*shape, n_rows), 1 / n_rows, np.float32)
            prefix.cache.take_step(states, importance)

    def _heard(self) -> list[TowerState]:
        """States of streams that began at any 10 ms, so that not all can share a pass."""
        tower = self._speech.tower
        return [
            tower.advance(tower.start(), self._mel(100 + lane % 4))[1]
            for lane in range(len(self._prefixes))
        ]

    def _encode(self, states: list[TowerState]) -> None:
        tower = self._speech.tower
        mels = [self._mel(self._size.step_ms // 10)] * len(states)
        encoded = tower.advance_each(states, mels)
        endings = tower.finish_each([state for _, state in encoded])
        for slots in (*(slots for slots, _ in encoded), *endings):
            if slots.shape[1]:
                self._speech.slots(slots)

    def _mel(self, n_frames: int) -> torch.Tensor:
        return self._speech.mel(torch.zeros((n_frames, self._n_mels)))


_EMPTY: Any = None  # a made-up read is never read


class CapturedPass:
    """A pass whose kernels are started all at once, by a CUDA graph.

    Args:
        run: The pass; it must neither wait for the host nor allocate by what it finds.
        inputs: Any inputs of the shapes it is for.
    """

    def __init__(self, run: Pass, inputs: PassInputs) -> None:
        self._inputs = PassInputs(*(tensor.clone() for tensor in inputs.tensors()))
        cuda: Any = torch.cuda  # typed in part
        stream = cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_N_WARM_UP):
                run(self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = run(self._inputs)

    def __call__(self, inputs: PassInputs) -> PassOutputs:
        """Run it; the outputs are good until the next run."""
        for own, given in zip(self._inputs.tensors(), inputs.tensors(), strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._outputs


def _positions(speech: SpeechModel, n_new: int) -> Inputs:
    return speech.tokens([7 + n % 97 for n in range(n_new)])


def _filled(speech: SpeechModel, layers: LayerMap, budget_slots: int) -> Prefix:
    """Return a prefix that holds as much as it may, of random keys and values."""
    prefix = Prefix(speech, PrefixOptions(CacheOptions(budget_slots, "fifo"), SLOT_MS))
    generator = torch.Generator(speech.device).manual_seed(1)
    shape = (1, layers.n_key_heads, budget_slots, layers.head_size)

    def made() -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=speech.device).to(speech.dtype)

    marks = [SlotMarks(SLOT_MS * i, SLOT_MS * (i + 1)) for i in range(budget_slots)]
    prefix.cache.expect(marks)
    states = {layer: (made(), made()) for layer in (*layers.full, *layers.sliding)}
    n_producers = len(layers.full)
    importance = np.full(
        (n_producers, layers.n_key_heads, budget_slots), 1 / budget_slots, np.float32
    )
    prefix.cache.take_step(states, importance)
    return prefix
