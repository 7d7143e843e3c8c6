"""Mode S: a live session in virtual time whose audio cache is held in a budget at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from benchmarks.measures import final_text
from benchmarks.recordings import SAMPLES_PER_MS, near_silence
from benchmarks.retention_held import CacheLog
from benchmarks.retention_policies import variants
from benchmarks.retention_rows import FULL, FULL_PERCENT, Cell, Row
from benchmarks.virtual_stream import VirtualListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from audiokv.models.base import Recognizer
    from audiokv.streaming.voice_activity import VoiceDetector
    from benchmarks.recordings import FloatArray
    from benchmarks.retention_policies import Variant
    from benchmarks.retention_rows import Table
    from benchmarks.retention_speech import Clip

TAIL_MS = 1500  # near-silence behind the speech, so that the last segment ends by its pause


@dataclass(frozen=True, slots=True)
class CacheBound:
    """A policy and the slots it may hold.

    Attributes:
        variant: The policy.
        budget_slots: Audio slots, the silence behind the audio aside.
    """

    variant: Variant
    budget_slots: int


class BoundedModel(Protocol):
    """What mode S needs of a model; each kind of recogniser has one adapter.

    Attributes:
        slot_bytes: Keys and values of one audio slot in all layers.
    """

    slot_bytes: int

    def recognizer(self, bound: CacheBound | None, log: CacheLog) -> Recognizer:
        """Return the model with its audio cache in a bound.

        Args:
            bound: What bounds it; None for the model as it is without a budget.
            log: Takes in what the cache held, each time the decoder runs.
        """

    def forget_audio(self) -> None:
        """Let go what is kept of the audio heard last, to hear it again sooner."""


class StreamingRunner:
    """Runs clips through sessions.

    Args:
        model: The model.
        open_detector: Gives a voice detector with its own state.
    """

    def __init__(self, model: BoundedModel, open_detector: Callable[[], VoiceDetector]) -> None:
        self._model = model
        self._open_detector = open_detector

    def hear(self, clip: Clip, bound: CacheBound | None) -> tuple[str, CacheLog]:
        """Return the final captions of a clip as text, and what the cache held."""
        log = CacheLog()
        listener = VirtualListener(self._model.recognizer(bound, log), self._open_detector)
        return final_text(listener.listen(with_tail(clip), clip.told_language).arrivals), log

    def rows(
        self,
        clips: Iterable[Clip],
        chosen: Sequence[Variant],
        percents: Sequence[int],
        table: Table,
        again: Sequence[str] = (),
    ) -> Iterator[Row]:
        """Measure the cells a table lacks, and add them to it.

        Args:
            clips: What is heard.
            chosen: The policies; the full cache is measured besides.
            percents: Retentions.
            table: Takes the rows.
            again: Policies to measure again.
        """
        for clip in clips:
            yield from self._clip_rows(clip, chosen, percents, table, again)
            self._model.forget_audio()

    def _clip_rows(
        self,
        clip: Clip,
        chosen: Sequence[Variant],
        percents: Sequence[int],
        table: Table,
        again: Sequence[str],
    ) -> Iterator[Row]:
        reference = Cell(clip.name, FULL, 0, FULL_PERCENT)
        if table.missing([reference], again):
            table.add(self._full(clip, reference))
            yield table.rows[reference]
        full_slots = table.rows[reference].held.full_slots
        for variant in chosen:
            for percent in percents if variant.name != FULL else ():
                cell = Cell(clip.name, variant.name, variant.seed, percent)
                if table.missing([cell], again):
                    table.add(self._bounded(clip, cell, variant, full_slots))
                    yield table.rows[cell]

    def _full(self, clip: Clip, cell: Cell) -> Row:
        """Hear a clip with a budget that nothing ever exceeds.

        Its windows then open and close at the same places as those of the other policies.
        """
        endless = CacheBound(variants([FULL], 1)[0], clip.duration_ms)
        text, log = self.hear(clip, endless)
        held = log.held(log.full_slots, log.full_slots, self._model.slot_bytes)
        return Row.of(clip, cell, text, held)

    def _bounded(self, clip: Clip, cell: Cell, variant: Variant, full_slots: int) -> Row:
        budget_slots = max(1, round(full_slots * cell.retention_percent / 100))
        text, log = self.hear(clip, CacheBound(variant, budget_slots))
        held = log.held(full_slots, budget_slots, self._model.slot_bytes)
        held.check(f"{variant.name} on {clip.name}")
        return Row.of(clip, cell, text, held)


def with_tail(clip: Clip) -> FloatArray:
    """Return a clip with near-silence behind it."""
    return np.concatenate((clip.samples, near_silence(TAIL_MS * SAMPLES_PER_MS)))
