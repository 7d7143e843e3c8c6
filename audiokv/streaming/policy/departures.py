"""Which slots left a ledger, and why."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.marks import Pool, Reason

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Mask
    from audiokv.streaming.policy.ledger import SlotLedger

# Reasons for which a policy chose among the held slots; the others leave it no choice.
CHOSEN = (Reason.FORCED, Reason.AHEAD)


class Standing(IntEnum):
    """What a slot was when a policy let it go; the first that holds."""

    COMMITTED = 0  # its words were final
    SILENCE = 1  # nobody spoke in it
    SPEECH = 2  # its words could still change


class DepartureTally:
    """Counts the slots that left, by reason and pool, and by standing where a policy chose."""

    def __init__(self) -> None:
        self._left = np.zeros((len(Reason), len(Pool)), np.int64)
        self._chosen = np.zeros(len(Standing), np.int64)

    def count(self, ledger: SlotLedger, leaves: Mask, reason: Reason) -> None:
        """Count slots that are about to leave for one reason.

        Args:
            ledger: It still holds them.
            leaves: Which rows leave, shape (held,).
            reason: Why.
        """
        self._left[reason] += np.bincount(ledger.pool[leaves], minlength=len(Pool))
        if reason in CHOSEN:
            standing = np.where(ledger.is_voice, Standing.SPEECH, Standing.SILENCE)
            standing[ledger.is_committed] = Standing.COMMITTED
            self._chosen += np.bincount(standing[leaves], minlength=len(Standing))

    def left(self) -> dict[tuple[Reason, Pool], int]:
        """Return how many left, by reason and the pool they left."""
        return {(why, pool): int(self._left[why, pool]) for why in Reason for pool in Pool}

    def chosen(self) -> dict[Standing, int]:
        """Return what the chosen ones were; sums to those of the reasons ``CHOSEN``."""
        return {standing: int(self._chosen[standing]) for standing in Standing}
