"""What a Gemma-3n of a published size costs a step on a device, with random weights.

Where the whole model is built each pass is timed as a whole. Else one layer of each kind is built
and timed with a cache behind it, and counted as often as the real model has it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from audiokv.models.gemma3n.conformer import StreamingBlock
from audiokv.models.gemma3n.mel import IncrementalMel, MelFrontEnd
from audiokv.models.gemma3n.prefix import Prefix, PrefixOptions
from audiokv.models.gemma3n.speech_model import SpeechModel
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.marks import SlotMarks
from benchmarks.budget_parts import Known, Part, measured_part
from benchmarks.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.gemma3n_sizes import CutModel, LayerKind

SAMPLES_PER_MS = 16
_WARM_UP = 1


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step reads and writes.

    Attributes:
        step_ms: Audio of a step.
        slot_ms: Audio of a slot.
        prefix_slots: Slots and tokens in the cache.
        tail_tokens: Slots that are not whole, end of audio, committed text and draft, together.
        word_tokens: Tokens of a new word.
        most_word_tokens: Those of a long one, of which the draft was wrong.
    """

    step_ms: int = 200
    slot_ms: int = 160
    prefix_slots: int = 256
    tail_tokens: int = 32
    word_tokens: float = 1.3
    most_word_tokens: int = 4


class DeviceClock:
    """Reads the time when a device has done all it was given.

    Args:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"

    def now_ms(self) -> float:
        """Return ms since some fixed moment; computing time of this thread on a processor."""
        if self._is_cuda:
            torch.cuda.synchronize()
            return time.perf_counter() * 1e3
        return time.thread_time() * 1e3

    def took_ms(
        self, work: Callable[[], object], repeats: int, n_warm_up: int = _WARM_UP
    ) -> list[float]:
        """Run something several times after a warm-up and return what each took."""
        for _ in range(n_warm_up):
            work()
        found = []
        for _ in range(repeats):
            began_ms = self.now_ms()
            work()
            found.append(self.now_ms() - began_ms)
        return found


class LayerBench:
    """Times passes of a model of a published size.

    Args:
        cut: The model.
        shape: What a step reads and writes.
        repeats: How often each pass is timed.
    """

    def __init__(self, cut: CutModel, shape: StepShape, repeats: int) -> None:
        self._cut = cut
        self._shape = shape
        self._repeats = repeats
        self._model = SpeechModel(cut.checkpoint)
        self._clock = DeviceClock(self._model.device)
        options = PrefixOptions(CacheOptions(shape.prefix_slots, "audiokv"), shape.slot_ms)
        self._prefix = Prefix(self._model, options)
        self._at_ms = 0

    @property
    def known(self) -> Known:
        """What its figures are known from."""
        return Known.MEASURED if self._cut.is_whole else Known.SCALED

    @torch.inference_mode()
    def parts(self) -> list[Part]:
        """Return the computing of one step that brings a new word."""
        shape = self._shape
        self._fill_prefix()
        slots = shape.step_ms / shape.slot_ms
        read_ms = self._pass_ms(self._append_one)
        tail_ms = self._pass_ms(lambda: self._in_tail(shape.tail_tokens))
        token_ms = self._pass_ms(lambda: self._in_tail(1))
        head_ms = self._head_ms()
        return [
            self._mel_part(),
            self._tower_part(),
            self._scaled("new slots into the cache", read_ms, (1.0, 1.0), _slot_note(slots)),
            self._scaled(
                "one pass over end of audio, text and draft",
                [a + b for a, b in zip(tail_ms, head_ms, strict=True)],
                (1.0, 2.0),
                f"{shape.tail_tokens} tokens behind {shape.prefix_slots} slots; twice at worst, "
                "where the draft was wrong",
            ),
            self._scaled(
                "tokens of the new word",
                [a + b for a, b in zip(token_ms, head_ms, strict=True)],
                (shape.word_tokens, float(shape.most_word_tokens)),
                f"{shape.word_tokens:.2f} tokens, at worst {shape.most_word_tokens}",
            ),
        ]

    @torch.inference_mode()
    def eviction_part(self) -> Part:
        """Return what making room takes, which is done after the captions are out."""
        took_ms = []
        for _ in range(self._repeats):
            self._append_one()
            began_ms = self._clock.now_ms()
            self._prefix.rest()
            took_ms.append(self._clock.now_ms() - began_ms)
        part = measured_part("eviction", took_ms, "in the pause after the caption")
        return Part(part.name, part.typical_ms, part.worst_ms, part.known, part.note, False)  # noqa: FBT003  a record's field

    def _scaled(
        self, name: str, pass_ms: Sequence[float], factors: tuple[float, float], note: str
    ) -> Part:
        typical, worst = np.percentile(pass_ms, (50, 95))
        return Part(name, float(typical * factors[0]), float(worst * factors[1]), self.known, note)

    def _mel_part(self) -> Part:
        from transformers import Gemma3nAudioFeatureExtractor  # noqa: PLC0415  slow to import

        mel = IncrementalMel(MelFrontEnd(Gemma3nAudioFeatureExtractor()))
        samples = np.zeros(self._shape.step_ms * SAMPLES_PER_MS, np.float32)
        took_ms = self._clock.took_ms(lambda: mel.push(samples), self._repeats)
        return measured_part("mel", took_ms, f"of {self._shape.step_ms} ms")

    def _tower_part(self) -> Part:
        tower = self._model.tower
        n_frames = self._shape.step_ms // 10
        mel = torch.zeros((n_frames, 128))
        state = tower.start()
        for _ in range(2):  # until its window is full
            _, state = tower.advance(state, self._model.mel(mel))
        watch = Stopwatch(lambda: self._clock.now_ms() / 1e3)
        whole_ms = []

        def step() -> None:
            _, after = tower.advance(state, self._model.mel(mel))
            self._model.slots(tower.finish(after))

        with watch.watching([(StreamingBlock, "advance", "blocks")]):
            step()
            for _ in range(self._repeats):
                watch.begin_row()
                whole_ms += self._clock.took_ms(step, 1, n_warm_up=0)
        factor = self._cut.n_blocks / self._cut.n_built_blocks
        built_ms = np.asarray([row["blocks"] for row in watch.rows])
        took_ms = np.asarray(whole_ms) + built_ms * (factor - 1)
        known = self.known if factor > 1 else Known.MEASURED
        typical, worst = np.percentile(took_ms, (50, 95))
        note = f"{self._shape.step_ms} ms of audio, and the slots that are not whole"
        return Part("audio tower", float(typical), float(worst), known, note)

    def _head_ms(self) -> list[float]:
        size = self._model.text_config.hidden_size
        hidden = torch.zeros((1, size), device=self._model.device, dtype=self._model.dtype)
        took_ms = self._clock.took_ms(lambda: self._model.logits(hidden), self._repeats)
        return [ms / self._cut.vocabulary_share for ms in took_ms]

    def _fill_prefix(self) -> None:
        n_slots = self._shape.prefix_slots
        marks = [self._next_mark() for _ in range(n_slots)]
        self._prefix.append(self._model.tokens([7] * n_slots), marks)

    def _append_one(self) -> None:
        self._prefix.append(self._model.tokens([7]), [self._next_mark()])

    def _next_mark(self) -> SlotMarks:
        start_ms, self._at_ms = self._at_ms, self._at_ms + self._shape.slot_ms
        return SlotMarks(start_ms, self._at_ms)

    def _in_tail(self, n_tokens: int) -> None:
        with self._prefix.tail():
            self._prefix.run_in_tail(self._model.tokens([7] * n_tokens))
            self._prefix.probe.take_step((), 1)

    def _pass_ms(self, run: Callable[[], object]) -> list[float]:
        """Return what a pass of the real model takes, several times."""
        if self._cut.is_whole:
            return self._clock.took_ms(run, self._repeats)
        by_kind: dict[LayerKind, list[float]] = defaultdict(list)
        with self._timed_layers(by_kind):
            whole_ms = np.asarray(self._clock.took_ms(run, self._repeats))
        extra_ms = sum(
            np.asarray(took_ms[_WARM_UP:]) * (self._cut.layer_counts[kind] - 1)
            for kind, took_ms in by_kind.items()
        )
        return list(whole_ms + extra_ms)

    @contextmanager
    def _timed_layers(self, by_kind: dict[LayerKind, list[float]]) -> Iterator[None]:
        began_ms: list[float] = []
        handles = []
        layers = self._cut.checkpoint.model.language_model.layers
        for kind, layer in zip(self._cut.kinds, layers, strict=True):

            def before(*_: Any) -> None:  # noqa: ANN401  torch's hook
                began_ms.append(self._clock.now_ms())

            def after(*_: Any, kind: LayerKind = kind) -> None:  # noqa: ANN401  likewise
                by_kind[kind].append(self._clock.now_ms() - began_ms.pop())

            handles += [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _slot_note(slots: float) -> str:
    return f"{slots:.2f} slots a step, read together"
