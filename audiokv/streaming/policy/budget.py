"""How many slots a stream may hold, and how they divide into pools."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from audiokv.streaming.policy.marks import Pool


class BudgetPreset(Enum):
    """Percent of the budget for the base, buffer and reserve pool."""

    BALANCED = (60, 30, 10)
    SHORT = (50, 40, 10)  # sessions under a minute: more of the stream is still being judged
    LONG = (70, 25, 5)  # sessions over five minutes: most of what is held has been judged


@dataclass(frozen=True, slots=True)
class Budget:
    """A stream's budget.

    Attributes:
        total_slots: Slots the stream may hold, prompt and sinks included.
        preset: How they divide.
        high_water: Share of the total above which pauses are used to make room, over 0 to 1.

    Raises:
        ValueError: No slots, or a mark out of range.
    """

    total_slots: int
    preset: BudgetPreset = BudgetPreset.BALANCED
    high_water: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what cannot be kept."""
        if self.total_slots < 1:
            raise ValueError(f"a budget of {self.total_slots} slots holds nothing")
        if not 0 < self.high_water <= 1:
            raise ValueError(f"the high-water mark {self.high_water} is not over 0 and up to 1")

    @property
    def high_water_slots(self) -> int:
        """Slots up to which nothing is evicted unless room is needed."""
        return int(self.total_slots * self.high_water)

    def slots_of(self, pool: Pool) -> int:
        """Return a pool's share in slots; the three sum to the total exactly.

        The base takes what rounding leaves over.
        """
        _, buffer_percent, reserve_percent = self.preset.value
        buffer_slots = self.total_slots * buffer_percent // 100
        reserve_slots = self.total_slots * reserve_percent // 100
        return {
            Pool.BASE: self.total_slots - buffer_slots - reserve_slots,
            Pool.BUFFER: buffer_slots,
            Pool.RESERVE: reserve_slots,
        }[pool]
