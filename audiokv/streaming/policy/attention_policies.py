"""Policies that go by attention received: H2O, TOVA and SnapKV.

All three evict one set for all heads and layers, the set the ledger can renumber. A slot that no
probe has seen yet has no score and is kept before any that has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.ordering import eviction_order, take

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Mask
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class H2oPolicy:
    """Keeps half heavy hitters by accumulated attention, half recent slots.

    H2O (Zhang et al. 2023, arXiv:2306.14048). Departs in that one set serves all heads where the
    paper has one a head, and in that attention accumulates per probe, not per token.

    Attributes:
        recent_share: Share of the kept slots that are the most recent ones.
    """

    recent_share: float = 0.5
    name: str = "h2o"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows with the least accumulated attention outside the recent ones."""
        n_recent = int((ledger.held - count) * self.recent_share)
        is_kept = newest(ledger, n_recent) | ~ledger.attention.is_observed
        return take(eviction_order(ledger, is_kept, ledger.attention.accumulated), count)


@dataclass(frozen=True, slots=True)
class TovaPolicy:
    """Evicts what the latest query attends to least.

    TOVA (Oren et al. 2024, arXiv:2401.06104): one set a layer, averaged over heads. Departs in
    that the average runs over the probed layers too, and over the queries of the probe.
    """

    name: str = "tova"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows with the least attention from the latest probe."""
        attention = ledger.attention
        return take(eviction_order(ledger, ~attention.is_observed, attention.latest), count)


@dataclass(frozen=True, slots=True)
class SnapKvPolicy:
    """Keeps what the latest queries attend to, pooled over neighbours, and the window itself.

    SnapKV (Li et al. 2024, arXiv:2404.14469): mean attention of an observation window, average
    pooling, the window always kept. Departs in that it runs again at each eviction of a stream,
    not once after the prompt; that the queries are those of the latest probes (the ledger's
    ``window_probes``); that one set serves all heads; and that the window is at most a quarter of
    what stays, so that small budgets hold more than the window.

    Attributes:
        window_slots: Most recent slots that stay.
        kernel_slots: Width of the average pooling, odd.

    Raises:
        ValueError: The kernel is not odd.
    """

    window_slots: int = 32
    kernel_slots: int = 5
    name: str = "snapkv"

    def __post_init__(self) -> None:
        """Refuse a kernel without a centre."""
        if self.kernel_slots < 1 or self.kernel_slots % 2 == 0:
            raise ValueError(f"the pooling kernel must be odd, not {self.kernel_slots}")

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows with the least pooled attention outside the window."""
        n_window = min(self.window_slots, (ledger.held - count) // 4)
        is_kept = newest(ledger, n_window) | ~ledger.attention.is_observed
        pooled = average_pooled(ledger.attention.windowed, self.kernel_slots)
        return take(eviction_order(ledger, is_kept, pooled), count)


def newest(ledger: SlotLedger, n_slots: int) -> Mask:
    """Return a mask of the last rows; of none where ``n_slots`` is 0 or less."""
    return np.arange(ledger.held) >= ledger.held - max(0, n_slots)


def average_pooled(values: Floats, kernel_slots: int) -> Floats:
    """Return the mean over a centred window, cut off at the ends.

    Args:
        values: Shape (..., n).
        kernel_slots: Odd width of the window.
    """
    n_slots = values.shape[-1]
    reach = kernel_slots // 2
    summed = np.zeros((*values.shape[:-1], n_slots + 1))
    np.cumsum(values, axis=-1, out=summed[..., 1:])
    first = np.maximum(np.arange(n_slots) - reach, 0)
    past = np.minimum(np.arange(n_slots) + reach + 1, n_slots)
    pooled: Floats = (summed[..., past] - summed[..., first]) / (past - first)
    return pooled
