"""Keeping each pool to its share: what has been judged moves on, old segment ends are let go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.marks import Keeping, Pool

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Indices
    from audiokv.streaming.policy.budget import Budget
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class PoolKeeper:
    """Says which slots change pools; the caller applies it through the ledger.

    Attributes:
        budget: The shares.
        min_retention_ms: Younger slots are still waiting to be judged.
    """

    budget: Budget
    min_retention_ms: int = 200

    def promotions(self, ledger: SlotLedger) -> Indices:
        """Return the oldest judged buffer slots that exceed the buffer's share, rising.

        A slot is judged once it is old enough and a probe has seen it; where no probe ever ran,
        age alone decides.
        """
        in_buffer = ledger.pool == Pool.BUFFER
        excess = int(np.count_nonzero(in_buffer)) - self.budget.slots_of(Pool.BUFFER)
        if excess <= 0:
            return np.empty(0, np.intp)
        judged = ledger.end_ms <= ledger.now_ms - self.min_retention_ms
        if ledger.attention.n_probes:
            judged &= ledger.attention.is_observed
        return np.flatnonzero(in_buffer & judged)[:excess]

    def released_ends(self, ledger: SlotLedger) -> Indices:
        """Return the oldest segment ends that exceed the reserve's share, rising."""
        excess = int(np.count_nonzero(ledger.pool == Pool.RESERVE)) - self.budget.slots_of(
            Pool.RESERVE
        )
        if excess <= 0:
            return np.empty(0, np.intp)
        return np.flatnonzero(ledger.keeping == Keeping.SEGMENT_END)[:excess]
