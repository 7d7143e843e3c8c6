"""KeyDiff: a policy that needs no attention, only keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.ordering import eviction_order, take

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Indices
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class KeyDiffPolicy:
    """Evicts the slots whose keys are most like the mean key.

    KeyDiff (Park et al. 2025, arXiv:2504.15364). The cache reports the cosines, averaged over
    layers and heads; departs in that one set serves all of them, where the paper has one a head.
    """

    name: str = "keydiff"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows most similar to the mean key, prompt last."""
        return take(eviction_order(ledger, np.negative(ledger.attention.key_similarity)), count)
