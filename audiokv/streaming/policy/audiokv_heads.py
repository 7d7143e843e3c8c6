"""AudioKV with audio-critical heads: each head's budget follows how well it tracks speech."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.guards import Guard
from audiokv.streaming.policy.head_budgets import apportion, top_slots
from audiokv.streaming.policy.headwise_policies import heads_of, total_of

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Ints, Mask
    from audiokv.streaming.policy.audiokv import AudioKvPolicy
    from audiokv.streaming.policy.head_record import HeadRecord
    from audiokv.streaming.policy.ledger import SlotLedger
    from audiokv.streaming.policy.protocol import Smoother


@dataclass(frozen=True, slots=True, eq=False)
class AudioKvHeadsPolicy:
    """Gives every head a floor and divides the rest by the heads' calibrated scores.

    The paper's budget b = w + r + B*S/sum(S), with the window w as the guards and with rounding
    that keeps the total exact. Language shares hold only for ``choose``, since heads do not know
    languages apart.

    Attributes:
        shared: The policy for one set of slots, and the guards.
        head_scores: How often the head's attention falls on the word being said, at least 0;
            shape (layers, heads) of the ledger's record.
        smoother: Runs along the slots of every head.
        floor_share: Part of the budget divided evenly (the paper's r = 50 %), 0 to 1.
        voice_weight: How much voice raises a slot's score.

    Raises:
        ValueError: The floor is out of range, or a score negative.
    """

    shared: AudioKvPolicy
    head_scores: Floats
    smoother: Smoother
    floor_share: float = 0.5
    voice_weight: float = 0.5
    name: str = "audiokv-heads"

    def __post_init__(self) -> None:
        """Refuse scores and floors that divide nothing."""
        if not 0 <= self.floor_share <= 1:
            raise ValueError(f"the floor {self.floor_share} is not 0 to 1")
        if self.head_scores.min() < 0:
            raise ValueError("head scores must be at least 0")

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows the shared policy evicts."""
        return self.shared.choose(ledger, count)

    def keep_mask(self, ledger: SlotLedger, n_keep: int) -> Mask:
        """Return each head's slots: guarded ones, then uncommitted, then committed, by score.

        Raises:
            ValueError: There is no per-head record of the shape of ``head_scores``.
        """
        heads = heads_of(ledger, n_keep)
        budgets = self.budgets(heads, n_keep)
        smoothed = np.maximum(self.smoother.smooth(heads.importance), 0.0)
        weighted = smoothed * (1 + self.voice_weight * ledger.is_voice) * ledger.prior
        # Below one, so that an uncommitted slot outranks every committed one.
        scores = weighted / (1.0 + weighted.max(initial=0.0)) + ~ledger.is_committed
        is_kept = self.shared.guards.rate(ledger) > Guard.NONE
        return top_slots(scores, budgets, heads.is_held, is_kept)

    def budgets(self, heads: HeadRecord, n_keep: int) -> Ints:
        """Return the slots of each head, shape (layers, heads); they sum to the exact total."""
        if self.head_scores.shape != (heads.n_layers, heads.n_heads):
            raise ValueError(
                f"head scores {self.head_scores.shape} for {heads.n_layers} layers "
                f"of {heads.n_heads} heads"
            )
        even = np.full_like(self.head_scores, 1.0 / self.head_scores.size)
        total_score = self.head_scores.sum()
        by_score = self.head_scores / total_score if total_score > 0 else even
        weights = self.floor_share * even + (1 - self.floor_share) * by_score
        return apportion(weights, total_of(heads, n_keep), heads.is_held.sum(axis=-1))
