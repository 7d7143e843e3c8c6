"""The slot ledger: one row for each slot the cache holds, and the only place that renumbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.attention_record import AttentionRecord
from audiokv.streaming.policy.column import Column
from audiokv.streaming.policy.departures import DepartureTally
from audiokv.streaming.policy.labels import Labels
from audiokv.streaming.policy.marks import Keeping, Pool, Reason, check_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Floats, Indices, Ints, Mask
    from audiokv.streaming.policy.departures import Standing
    from audiokv.streaming.policy.head_record import HeadRecord
    from audiokv.streaming.policy.marks import SlotMarks


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """How many slots came, stay and went.

    Attributes:
        seen: Slots ever appended (logical length).
        held: Slots held now (physical length).
        held_by_pool: Held slots of each pool.
        evicted: Slots that left, by reason and the pool they left; sums to seen - held.
        chosen: What those were that a policy chose; sums to the forced and those ahead of need.
    """

    seen: int
    held: int
    held_by_pool: dict[Pool, int]
    evicted: dict[tuple[Reason, Pool], int]
    chosen: dict[Standing, int]


class SlotLedger:
    """One row a slot in the order of arrival, mirroring the model's cache.

    Row i describes position i of the cache. Whoever appends to or evicts from the cache does the
    same here, with the same indices, and nobody else renumbers. All arrays handed out are
    read-only views of the held rows, valid until the next append or eviction.

    Args:
        n_sinks: First audio slots of the stream that count as attention sinks.
        window_probes: Probes covered by the windowed attention statistics.
        heads: Per-head record, kept in step with the rows, or None.

    Raises:
        ValueError: The number of sinks is negative.
    """

    def __init__(
        self, *, n_sinks: int = 4, window_probes: int = 32, heads: HeadRecord | None = None
    ) -> None:
        if n_sinks < 0:
            raise ValueError(f"{n_sinks} sinks cannot be kept")
        self.attention = AttentionRecord(window_probes)
        self.heads = heads
        self.speakers = Labels()
        self.languages = Labels()
        self._n_sinks_due = n_sinks
        self._seen = 0
        self._departures = DepartureTally()
        self._start_ms = Column(np.int64)
        self._end_ms = Column(np.int64)
        self._is_voice = Column(np.bool_)
        self._is_boundary = Column(np.bool_)
        self._is_committed = Column(np.bool_)
        self._speaker = Column(np.int16)
        self._language = Column(np.int16)
        self._pool = Column(np.int8)
        self._keeping = Column(np.int8)
        self._multiplicity = Column(np.int64)
        self._prior = Column(np.float64)
        self._score = Column(np.float64)

    @property
    def seen(self) -> int:
        """Slots ever appended: the logical length."""
        return self._seen

    @property
    def held(self) -> int:
        """Slots held now: the physical length."""
        return len(self._start_ms.rows)

    @property
    def now_ms(self) -> int:
        """End of the newest audio held, 0 before the first."""
        return int(self._end_ms.rows[-1]) if self.held else 0

    @property
    def start_ms(self) -> Ints:
        """Start of each slot's audio; never falls along the rows."""
        return self._start_ms.rows

    @property
    def end_ms(self) -> Ints:
        """End of each slot's audio; never falls along the rows."""
        return self._end_ms.rows

    @property
    def is_voice(self) -> Mask:
        """Whether the slot is voiced."""
        return self._is_voice.rows

    @property
    def is_boundary(self) -> Mask:
        """Whether a phoneme boundary lies in the slot."""
        return self._is_boundary.rows

    @property
    def is_committed(self) -> Mask:
        """Whether the words of the slot are committed."""
        return self._is_committed.rows

    @property
    def speaker(self) -> NDArray[np.int16]:
        """Number of the speaker (``speakers`` has the names), 0 for unknown."""
        return self._speaker.rows

    @property
    def language(self) -> NDArray[np.int16]:
        """Number of the language (``languages`` has the codes), 0 for unknown."""
        return self._language.rows

    @property
    def pool(self) -> NDArray[np.int8]:
        """``Pool`` of each slot."""
        return self._pool.rows

    @property
    def keeping(self) -> NDArray[np.int8]:
        """``Keeping`` of each slot: the lasting guards."""
        return self._keeping.rows

    @property
    def multiplicity(self) -> Ints:
        """How many original slots the slot stands for; its logarithm joins its attention logit."""
        return self._multiplicity.rows

    @property
    def prior(self) -> Floats:
        """Factor of the dialect prior."""
        return self._prior.rows

    @property
    def score(self) -> Floats:
        """Score as last set; new slots have 0."""
        return self._score.rows

    @property
    def n_bytes(self) -> int:
        """Bytes allocated by all columns, spare capacity included."""
        own = sum(column.n_bytes for column in self._columns())
        return own + self.attention.n_bytes + (self.heads.n_bytes if self.heads else 0)

    def counts(self) -> LedgerCounts:
        """Return the counters as they stand."""
        by_pool = np.bincount(self._pool.rows, minlength=len(Pool))
        return LedgerCounts(
            seen=self._seen,
            held=self.held,
            held_by_pool={pool: int(by_pool[pool]) for pool in Pool},
            evicted=self._departures.left(),
            chosen=self._departures.chosen(),
        )

    def append(self, marks: Sequence[SlotMarks]) -> None:
        """Add slots behind the held ones; they enter the buffer, prompt and sinks the reserve.

        Args:
            marks: The new slots in time order.

        Raises:
            ValueError: A slot ends before it starts or starts before its predecessor.
        """
        if not marks:
            return
        last_start_ms = int(self._start_ms.rows[-1]) if self.held else None
        check_order(marks, last_start_ms, self.now_ms)
        keeping = [self._keeping_of(mark) for mark in marks]
        n_slots = len(marks)
        columns: tuple[tuple[Column[np.generic], list[float]], ...] = (
            (self._start_ms, [mark.start_ms for mark in marks]),
            (self._end_ms, [mark.end_ms for mark in marks]),
            (self._is_voice, [mark.is_voice for mark in marks]),
            (self._is_boundary, [mark.is_boundary for mark in marks]),
            (self._speaker, [self.speakers.number(mark.speaker) for mark in marks]),
            (self._language, [self.languages.number(mark.language) for mark in marks]),
            (self._pool, [Pool.RESERVE if kept else Pool.BUFFER for kept in keeping]),
            (self._keeping, [*keeping]),
            (self._prior, [mark.prior for mark in marks]),
        )
        for column, values in columns:
            column.append(values, n_slots)
        self._is_committed.append(False, n_slots)
        self._multiplicity.append(1, n_slots)
        self._score.append(0.0, n_slots)
        self.attention.append(n_slots)
        if self.heads is not None:
            self.heads.append(n_slots)
        self._seen += n_slots

    def commit_until(self, at_ms: int) -> None:
        """Mark every slot whose audio ends by ``at_ms`` as committed; commitments stay."""
        self._is_committed.write(self._is_committed.rows | (self._end_ms.rows <= at_ms))

    def set_scores(self, scores: Floats) -> None:
        """Replace the scores of all held slots; shape (held,)."""
        self._score.write(scores)

    def mark_segment_end(self, at_ms: int) -> None:
        """Guard the last audio slot that starts before ``at_ms``; it moves to the reserve."""
        audio = np.flatnonzero(
            (self._start_ms.rows < at_ms) & (self._keeping.rows != Keeping.PROMPT)
        )
        last = audio[-1:]
        self._keeping.write_at(last, np.maximum(self._keeping.rows[last], Keeping.SEGMENT_END))
        self._pool.write_at(last, Pool.RESERVE)

    def release_segment_ends(self, indices: Indices) -> None:
        """Take the guard off segment ends; they move to the base pool."""
        ends = indices[self._keeping.rows[indices] == Keeping.SEGMENT_END]
        self._keeping.write_at(ends, Keeping.NONE)
        self._pool.write_at(ends, Pool.BASE)

    def promote(self, indices: Indices) -> None:
        """Move slots to the base pool; the cache restores them to full precision."""
        self._pool.write_at(indices, Pool.BASE)

    def evict(self, indices: Indices, reason: Reason) -> Indices:
        """Let slots go and renumber the rest without changing their order.

        Args:
            indices: Rows to drop, in any order.
            reason: What to count them under.

        Returns:
            Rows that stay, in their old numbers and rising: what the cache must keep.

        Raises:
            IndexError: A row that is not held.
        """
        stays = np.ones(self.held, np.bool_)
        if len(indices) and min(indices) < 0:
            raise IndexError(f"there is no row {min(indices)}")
        stays[indices] = False
        return self._drop(stays, reason)

    def share_silence(self, until_ms: int) -> Indices:
        """Let every run of adjoining unvoiced slots share its first slot.

        Guarded slots, boundaries and slots that do not adjoin in time are left alone. The shared
        slot spans the run and counts for all of it through its multiplicity.

        Args:
            until_ms: Only slots that end by then may be shared; newer ones may still be the
                onset of a word.

        Returns:
            Rows that stay, in their old numbers and rising: what the cache must keep.
        """
        quiet = (
            ~self._is_voice.rows
            & ~self._is_boundary.rows
            & (self._keeping.rows == Keeping.NONE)
            & (self._end_ms.rows <= until_ms)
        )
        goes = np.zeros(self.held, np.bool_)
        goes[1:] = quiet[1:] & quiet[:-1] & (self._start_ms.rows[1:] == self._end_ms.rows[:-1])
        absorbed = np.flatnonzero(goes)
        if not len(absorbed):
            return np.arange(self.held)
        first_of_run = np.maximum.accumulate(np.where(goes, 0, np.arange(self.held)))
        self._absorb(first_of_run[absorbed], absorbed)
        return self._drop(~goes, Reason.SHARED)

    def rows_before(self, at_ms: int) -> Indices:
        """Return the rows of audio that ends by ``at_ms``, prompt excluded."""
        return np.flatnonzero((self._end_ms.rows <= at_ms) & (self._keeping.rows != Keeping.PROMPT))

    def _keeping_of(self, mark: SlotMarks) -> Keeping:
        if mark.is_prompt:
            return Keeping.PROMPT
        if self._n_sinks_due:
            self._n_sinks_due -= 1
            return Keeping.SINK
        return Keeping.NONE

    def _absorb(self, into: Indices, absorbed: Indices) -> None:
        multiplicity = self._multiplicity.rows.copy()
        np.add.at(multiplicity, into, multiplicity[absorbed])
        self._multiplicity.write(multiplicity)
        end_ms = self._end_ms.rows.copy()
        np.maximum.at(end_ms, into, end_ms[absorbed])
        self._end_ms.write(end_ms)
        committed = self._is_committed.rows.copy()
        np.logical_and.at(committed, into, committed[absorbed])
        self._is_committed.write(committed)
        score = self._score.rows.copy()
        np.maximum.at(score, into, score[absorbed])
        self._score.write(score)
        self.attention.absorb(into, absorbed)
        if self.heads is not None:
            self.heads.absorb(into, absorbed)

    def _drop(self, stays: Mask, reason: Reason) -> Indices:
        kept = np.flatnonzero(stays)
        if len(kept) == len(stays):
            return kept
        self._departures.count(self, ~stays, reason)
        for column in self._columns():
            column.keep(kept)
        self.attention.keep(kept)
        if self.heads is not None:
            self.heads.keep(kept)
        return kept

    def _columns(self) -> tuple[Column[np.generic], ...]:
        return (
            self._start_ms,
            self._end_ms,
            self._is_voice,
            self._is_boundary,
            self._is_committed,
            self._speaker,
            self._language,
            self._pool,
            self._keeping,
            self._multiplicity,
            self._prior,
            self._score,
        )
