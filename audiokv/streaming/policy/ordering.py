"""Turning preferences into a choice of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.marks import Keeping

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from audiokv.streaming.policy.arrays import Indices
    from audiokv.streaming.policy.ledger import SlotLedger


def eviction_order(ledger: SlotLedger, *keys: ArrayLike) -> Indices:
    """Return all rows, those to evict first in front.

    Prompt slots hold no audio and come last under every policy, so that policies compare on audio
    alone. Among the rest the smallest first key leaves first, later keys break ties, and the
    older slot leaves at a full tie.

    Args:
        ledger: The held slots.
        keys: Preferences, most important first, each of shape (held,).
    """
    is_prompt = ledger.keeping == Keeping.PROMPT
    return np.lexsort((*(np.asarray(key) for key in reversed(keys)), is_prompt))


def take(order: Indices, count: int) -> Indices:
    """Return the first ``count`` rows of an order, rising.

    Raises:
        ValueError: There are fewer, or the count is negative.
    """
    check_count(count, len(order))
    return np.sort(order[:count])


def check_count(count: int, held: int) -> None:
    """Refuse to evict fewer than no slots or more than are held.

    Raises:
        ValueError: The count is out of range.
    """
    if not 0 <= count <= held:
        raise ValueError(f"cannot evict {count} of {held} slots")
