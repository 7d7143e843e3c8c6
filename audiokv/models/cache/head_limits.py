"""A fixed number of slots for each layer or head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.head_budgets import apportion, top_slots
from audiokv.streaming.policy.marks import Keeping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.head_record import HeadRecord
    from audiokv.streaming.policy.ledger import SlotLedger
    from audiokv.streaming.policy.protocol import EvictionPolicy

    Indices = NDArray[np.intp]
    Mask = NDArray[np.bool_]


def limits_by_scores(
    scores: NDArray[np.float64], n_slots: int, floor_share: float = 0.5
) -> NDArray[np.int64]:
    """Divide slots among heads by how well they follow speech, once and for all.

    After the paper's ``r + B * S / sum(S)``: a floor for every head and the rest by score, with
    rounding that keeps the total exact.

    Args:
        scores: Shape (layers, key heads), at least 0.
        n_slots: Slots a head holds on average.
        floor_share: Part of the slots divided evenly, 0 to 1.

    Returns:
        Slots of each head, of the same shape: a budget for ``BudgetedCache``.

    Raises:
        ValueError: The floor is out of range.
    """
    if not 0 <= floor_share <= 1:
        raise ValueError(f"the floor {floor_share} is not 0 to 1")
    floor_slots = int(floor_share * n_slots)
    left = (n_slots - floor_slots) * scores.size
    return floor_slots + apportion(scores, left, np.full(scores.shape, left))


@dataclass(frozen=True, slots=True, eq=False)
class HeadLimits:
    """Lets each head keep its own number of slots, by the attention that it gave them.

    Prompt, sinks and a recent window come before attention, the window up to a quarter of a
    head's slots.

    Attributes:
        shared: Chooses where one set of slots serves all heads.
        n_slots: Slots of each head, shape (layers, heads).
        name: Name of the policy.
    """

    shared: EvictionPolicy
    n_slots: NDArray[np.int64]
    name: str = "head-limits"

    def are_kept(self, heads: HeadRecord) -> bool:
        """Whether no head holds more than its own."""
        return bool((heads.is_held.sum(axis=-1) <= self.n_slots).all())

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows that the shared policy evicts."""
        return self.shared.choose(ledger, count)

    def keep_mask(self, ledger: SlotLedger, n_keep: int) -> Mask:
        """Return each head's slots, shape (layers, heads, held).

        Args:
            ledger: All held slots, with a record per head.
            n_keep: Not used: the limits say how many.

        Raises:
            ValueError: The ledger has no record per head.
        """
        if ledger.heads is None:
            raise ValueError("this ledger keeps no record per head")
        del n_keep
        is_held = ledger.heads.is_held
        budgets = np.minimum(self.n_slots, is_held.sum(axis=-1))
        n_recent = int(self.n_slots.min()) // 4
        is_recent = np.arange(ledger.held) >= ledger.held - n_recent
        is_kept = is_recent | (ledger.keeping >= Keeping.SINK)
        return top_slots(ledger.heads.importance, budgets, is_held, is_kept)
