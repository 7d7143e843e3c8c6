"""Mode S: a live session in virtual time whose audio cache is held in a budget at every step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from audiokv.models.base import StreamOptions
from audiokv.streaming.audio_format import FRAME_SAMPLES, AudioFormat
from audiokv.streaming.captions import Caption
from audiokv.streaming.session import Session
from benchmarks.recordings import SAMPLES_PER_MS, near_silence, to_pcm
from benchmarks.retention_held import CacheLog
from benchmarks.retention_policies import variants
from benchmarks.retention_rows import FULL, FULL_PERCENT, Cell, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from audiokv.models.base import Hypothesis, RecognizerInfo, RecognizerStream
    from audiokv.streaming.captions import Event
    from audiokv.streaming.voice_activity import VoiceDetector
    from benchmarks.recordings import FloatArray
    from benchmarks.retention_policies import Variant
    from benchmarks.retention_rows import Table
    from benchmarks.retention_speech import Clip

_FRAME_BYTES = 2 * FRAME_SAMPLES
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
        n_together: How many streams are worth decoding at once.
    """

    slot_bytes: int
    n_together: int

    @property
    def info(self) -> RecognizerInfo:
        """What the model is and can do."""

    def open_stream(
        self, options: StreamOptions, bound: CacheBound | None, log: CacheLog
    ) -> RecognizerStream:
        """Return a stream with its audio cache in a bound.

        Args:
            options: What the source wishes.
            bound: What bounds it; None for the model as it is without a budget.
            log: Takes in what the cache held, each time the decoder runs.
        """

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        """Recognise what streams that are due have heard."""

    def forget_audio(self) -> None:
        """Let go what is kept of the audio heard last, to hear it again sooner."""


class DetectOnce:
    """A voice detector that is asked only once about the same audio after the same audio.

    Args:
        detector: Judges what is not known.
        known: Probabilities by all audio before, as a digest, and the chunk; shared.
    """

    def __init__(self, detector: VoiceDetector, known: dict[tuple[bytes, bytes], float]) -> None:
        self._detector = detector
        self._known = known
        self.reset()

    def reset(self) -> None:
        """Forget the stream."""
        self._detector.reset()
        self._past = b""
        self._unheard: list[FloatArray] = []

    def probability(self, samples: FloatArray) -> float:
        """Return the probability of voice in a chunk."""
        key = (self._past, samples.tobytes())
        self._past = hashlib.sha1(b"".join(key), usedforsecurity=False).digest()
        self._unheard.append(samples)
        if key not in self._known:
            for chunk in self._unheard:  # the last one is what was asked
                self._known[key] = self._detector.probability(chunk)
            self._unheard = []
        return self._known[key]


class StreamingRunner:
    """Runs clips through sessions.

    Args:
        model: The model.
        open_detector: Gives a voice detector with its own state.
    """

    def __init__(self, model: BoundedModel, open_detector: Callable[[], VoiceDetector]) -> None:
        self._model = model
        self._open_detector = open_detector
        self._heard: dict[tuple[bytes, bytes], float] = {}

    def hear(self, clip: Clip, bound: CacheBound | None) -> tuple[str, CacheLog]:
        """Return the final captions of a clip as text, and what the cache held."""
        return self.hear_each(clip, [bound])[0]

    def hear_each(
        self, clip: Clip, bounds: Sequence[CacheBound | None]
    ) -> list[tuple[str, CacheLog]]:
        """Return the same for several caches that hear the clip side by side."""
        logs = [CacheLog() for _ in bounds]
        options = StreamOptions(language=clip.told_language)
        lines = [
            _Line(
                Session(
                    fmt=AudioFormat(),
                    stream=self._model.open_stream(options, bound, log),
                    info=self._model.info,
                    detector=DetectOnce(self._open_detector(), self._heard),
                )
            )
            for bound, log in zip(bounds, logs, strict=True)
        ]
        audio = to_pcm(with_tail(clip))
        for first in range(0, len(audio), _FRAME_BYTES):
            for line in lines:
                line.session.push(audio[first : first + _FRAME_BYTES])
                if first + _FRAME_BYTES >= len(audio):
                    line.session.stop()
            self._catch_up(lines)
        return [(line.text, log) for line, log in zip(lines, logs, strict=True)]

    def _catch_up(self, lines: Sequence[_Line]) -> None:
        """Do all that is due, and use the time after each step."""
        due = [line for line in lines if line.is_due()]
        while due:
            heard = self._model.decode([line.session.stream for line in due])
            for line, hypothesis in zip(due, heard, strict=True):
                line.take(hypothesis)
                line.session.rest()
            due = [line for line in due if line.is_due()]

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
            self._heard.clear()

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
        cells = {
            Cell(clip.name, variant.name, variant.seed, percent): variant
            for variant in chosen
            for percent in percents
            if variant.name != FULL
        }
        missing = table.missing([*cells], again)
        for first in range(0, len(missing), self._model.n_together):
            group = {cell: cells[cell] for cell in missing[first : first + self._model.n_together]}
            for row in self._bounded(clip, group, full_slots):
                table.add(row)
                yield table.rows[row.cell]

    def _full(self, clip: Clip, cell: Cell) -> Row:
        """Hear a clip with a budget that nothing ever exceeds, text of closed segments included.

        Its windows then open and close at the same places as those of the other policies.
        """
        endless_slots = 2 * (clip.duration_ms + TAIL_MS) // self._model.info.slot_ms
        text, log = self.hear(clip, CacheBound(variants([FULL], 1)[0], endless_slots))
        held = log.held(log.full_slots, log.full_slots, self._model.slot_bytes)
        return Row.of(clip, cell, text, held)

    def _bounded(self, clip: Clip, cells: Mapping[Cell, Variant], full_slots: int) -> list[Row]:
        budgets = [max(1, round(full_slots * cell.retention_percent / 100)) for cell in cells]
        bounds = [CacheBound(*pair) for pair in zip(cells.values(), budgets, strict=True)]
        rows = []
        for cell, budget, (text, log) in zip(
            cells, budgets, self.hear_each(clip, bounds), strict=True
        ):
            held = log.held(full_slots, budget, self._model.slot_bytes)
            held.check(f"{cell.policy} on {clip.name}")
            rows.append(Row.of(clip, cell, text, held))
        return rows


class _Line:
    """A session and what it said.

    Args:
        session: Fresh.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._captions: list[Caption] = []

    @property
    def text(self) -> str:
        """All final captions in order."""
        return " ".join(caption.text for caption in self._captions if caption.text)

    def is_due(self) -> bool:
        """Listen to what was pushed; tell whether a recognition step is due."""
        self._note(self.session.prepare())
        return self.session.is_step_due

    def take(self, hypothesis: Hypothesis) -> None:
        """Take the recognition that was due."""
        self._note(self.session.apply(hypothesis))

    def _note(self, events: Sequence[Event]) -> None:
        self._captions += [e for e in events if isinstance(e, Caption) and e.is_final]


def with_tail(clip: Clip) -> FloatArray:
    """Return a clip with near-silence behind it."""
    return np.concatenate((clip.samples, near_silence(TAIL_MS * SAMPLES_PER_MS)))
