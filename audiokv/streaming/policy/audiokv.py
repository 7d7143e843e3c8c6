"""The AudioKV policy: speech decides what stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.budget import BudgetPreset
from audiokv.streaming.policy.guards import Guard, Guards
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.marks import Pool
from audiokv.streaming.policy.ordering import take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Indices
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class AudioKvPolicy:
    """Evicts committed slots first, then candidates by score, and keeps what speech needs.

    The order, first to leave in front:

    1. slots whose words are committed;
    2. candidates: the buffer pool, and what the base pool holds beyond its share;
    3. the rest of the base pool, then of the reserve;
    4. slots within their language's guaranteed share, in the order above;
    5. guarded slots, by ``Guard``: the smallest gives way first, since the budget always wins.

    Within each step the lower score leaves first, the older slot at a tie; young slots and
    segment ends give way oldest first, sinks and prompt newest first.

    After the AudioKV paper and design, departing from the paper in that it runs at any time of a
    stream, with the words already committed as the first criterion.

    Attributes:
        guards: What must not leave.
        languages: Guaranteed shares.
        preset: Gives the base pool's share of what stays.
    """

    guards: Guards
    languages: LanguageShares = field(default_factory=LanguageShares)
    preset: BudgetPreset = BudgetPreset.BALANCED
    name: str = "audiokv"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the first rows of the order above."""
        order = self._order(ledger, ledger.held - count)
        return take(order, count)

    def _order(self, ledger: SlotLedger, n_keep: int) -> Indices:
        guard = self.guards.rate(ledger)
        order = np.lexsort((_scores(ledger, guard), self._steps(ledger, n_keep), guard))
        n_free = int(np.count_nonzero(guard == Guard.NONE))
        free = order[:n_free]
        is_deferred = self.languages.defer(free, ledger.language, n_keep)
        return np.concatenate((free[~is_deferred], free[is_deferred], order[n_free:]))

    def _steps(self, ledger: SlotLedger, n_keep: int) -> NDArray[np.int8]:
        """Return 0 for committed slots, 1 for candidates, 2 for the base, 3 for the reserve."""
        steps = np.full(ledger.held, 1, np.int8)
        steps[ledger.pool == Pool.RESERVE] = 3
        base = np.flatnonzero(ledger.pool == Pool.BASE)
        n_base = n_keep * self.preset.value[0] // 100
        best_last = base[np.argsort(ledger.score[base], kind="stable")]
        steps[best_last[max(0, len(base) - n_base) :]] = 2
        steps[ledger.is_committed] = 0
        return steps


def _scores(ledger: SlotLedger, guard: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the scores, with guarded slots ordered by age instead.

    A sink or prompt slot matters the more the earlier it stands; of young slots and segment ends
    the newest matter most.
    """
    age = np.arange(ledger.held, dtype=np.float64)
    scores = ledger.score.copy()
    by_age = (guard == Guard.YOUNG) | (guard == Guard.SEGMENT_END)
    scores[by_age] = age[by_age]
    by_place = guard >= Guard.SINK
    scores[by_place] = -age[by_place]
    return scores
