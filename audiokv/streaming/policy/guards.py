"""Which slots must not leave, and in what order guards give way when they fill the budget."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS
from audiokv.streaming.policy.arrays import NO_SLOTS, slots_for
from audiokv.streaming.policy.marks import Keeping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Indices, Ints
    from audiokv.streaming.policy.ledger import SlotLedger


class Guard(IntEnum):
    """Protection of a slot. Where guards would fill the budget, smaller ones give way first.

    A segment end is a marker the model can do without; a phoneme being spoken matters for one
    word; a young slot has not been seen yet; without sinks and prompt everything fails.
    """

    NONE = 0
    SEGMENT_END = 1
    NEAR_BOUNDARY = 2
    YOUNG = 3
    SINK = 4
    PROMPT = 5


@dataclass(frozen=True, slots=True)
class Guards:
    """Rates the protection of every slot.

    Attributes:
        slot_ms: Length of one slot.
        min_retention_ms: Slots younger than this are kept.
        boundary_frames: Uncommitted slots within this many 10 ms frames of a phoneme boundary are
            kept.
        max_share: Part of what stays that guards may bind, 0 to 1, see ``binding``.

    Raises:
        ValueError: A negative window, or a share that is none.
    """

    slot_ms: int
    min_retention_ms: int = 200
    boundary_frames: int = 10
    max_share: float = 0.25

    def __post_init__(self) -> None:
        """Refuse windows and shares that mean nothing."""
        if not 0 <= self.max_share <= 1:
            raise ValueError(f"the guards' share {self.max_share} is not 0 to 1")
        slots_for(self.min_retention_ms, self.slot_ms)
        slots_for(self.boundary_frames * FRAME_MS, self.slot_ms)

    def rate(self, ledger: SlotLedger) -> NDArray[np.int8]:
        """Return the strongest ``Guard`` of each slot, shape (held,)."""
        keeping = ledger.keeping
        guard = np.zeros(ledger.held, np.int8)
        guard[keeping == Keeping.SEGMENT_END] = Guard.SEGMENT_END
        guard[self._near_boundary(ledger)] = Guard.NEAR_BOUNDARY
        n_young = slots_for(self.min_retention_ms, self.slot_ms)
        guard[ledger.end_ms > ledger.now_ms - n_young * self.slot_ms] = Guard.YOUNG
        guard[keeping == Keeping.SINK] = Guard.SINK
        guard[keeping == Keeping.PROMPT] = Guard.PROMPT
        return guard

    def binding(self, ledger: SlotLedger, n_keep: int) -> NDArray[np.int8]:
        """Return the guards that hold when few slots stay, shape (held,).

        Guards that fill a small budget leave no room for what connects the guarded places. So
        each kind binds, strongest first, only if its slots and those of the stronger kinds fit
        into ``max_share`` of what stays; the prompt always does.

        Args:
            ledger: All held slots.
            n_keep: How many of them stay.
        """
        guard = self.rate(ledger)
        counts = np.bincount(guard, minlength=len(Guard))
        room = int(n_keep * self.max_share) - counts[Guard.PROMPT]
        for kind in (Guard.SINK, Guard.YOUNG, Guard.NEAR_BOUNDARY, Guard.SEGMENT_END):
            if counts[kind] > room:
                guard[guard == kind] = Guard.NONE
            else:
                room -= counts[kind]
        return guard

    def _near_boundary(self, ledger: SlotLedger) -> Indices:
        """Return the uncommitted rows near a boundary."""
        reach_ms = slots_for(self.boundary_frames * FRAME_MS, self.slot_ms) * self.slot_ms
        boundaries = np.flatnonzero(ledger.is_boundary)
        rows = np.flatnonzero(~ledger.is_committed)
        if not len(boundaries):
            return NO_SLOTS
        following = np.searchsorted(boundaries, rows)
        distance_ms = np.minimum(
            _gap_ms(ledger, rows, boundaries[np.minimum(following, len(boundaries) - 1)]),
            _gap_ms(ledger, rows, boundaries[np.maximum(following - 1, 0)]),
        )
        return rows[distance_ms < reach_ms]


def _gap_ms(ledger: SlotLedger, rows: Indices, others: Indices) -> Ints:
    """Return the time between each row's slot and another; 0 where they touch or overlap."""
    after: Ints = ledger.start_ms[others] - ledger.end_ms[rows]
    before: Ints = ledger.start_ms[rows] - ledger.end_ms[others]
    return np.maximum(np.maximum(after, before), 0)
