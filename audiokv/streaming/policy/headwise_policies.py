"""Policies whose layers or heads keep different slots: PyramidKV and AdaKV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.attention_policies import SnapKvPolicy, average_pooled, newest
from audiokv.streaming.policy.head_budgets import apportion, ranks, top_slots
from audiokv.streaming.policy.marks import Keeping
from audiokv.streaming.policy.ordering import check_count, eviction_order, take

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Indices, Ints, Mask
    from audiokv.streaming.policy.head_record import HeadRecord
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class PyramidKvPolicy:
    """SnapKV's score with a budget that falls linearly from the first layer to the last.

    PyramidKV (Cai et al. 2024, arXiv:2406.02069): the last layer gets 1/beta of the average, the
    first what makes the total come out. Departs in that rounding keeps the total exact, that
    attention is an exponential mean over probes where the paper has the last queries, and that
    without a per-head record, or for a cache that cannot mask per head, one set is evicted: the
    slots that the fewest heads would keep (SnapKV's choice where there is no record).

    Attributes:
        beta: Steepness; 1 gives every layer the same.
        window_slots: Most recent slots every head keeps, up to a quarter of its average budget.
        kernel_slots: Width of the average pooling, odd.

    Raises:
        ValueError: ``beta`` is below 1.
    """

    beta: float = 20.0
    window_slots: int = 32
    kernel_slots: int = 5
    name: str = "pyramidkv"

    def __post_init__(self) -> None:
        """Refuse a pyramid on its head."""
        if self.beta < 1:
            raise ValueError(f"beta must be at least 1, not {self.beta}")

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows that the fewest heads would keep."""
        if ledger.heads is None:
            return SnapKvPolicy(self.window_slots, self.kernel_slots).choose(ledger, count)
        check_count(count, ledger.held)
        return fewest_votes(ledger, self.keep_mask(ledger, ledger.held - count), count)

    def keep_mask(self, ledger: SlotLedger, n_keep: int) -> Mask:
        """Return each head's slots; layers of falling size, heads of a layer alike."""
        heads = heads_of(ledger, n_keep)
        last = 1.0 / self.beta
        by_layer = np.linspace(2.0 - last, last, heads.n_layers)[:, None]
        weights = np.broadcast_to(by_layer, (heads.n_layers, heads.n_heads))
        budgets = apportion(weights, total_of(heads, n_keep), heads.is_held.sum(axis=-1))
        scores = average_pooled(heads.importance, self.kernel_slots)
        is_kept = always_kept(ledger, n_keep, self.window_slots)
        return top_slots(scores, budgets, heads.is_held, is_kept)


@dataclass(frozen=True, slots=True)
class AdaKvPolicy:
    """SnapKV's score, ranked across the heads of a layer, above a floor for each head.

    Ada-KV (Feng et al. 2024, arXiv:2407.11550). Departs like ``PyramidKvPolicy``: exponential
    mean over probes, and a single set where heads cannot differ.

    Attributes:
        floor_share: Part of the average budget every head keeps.
        window_slots: Most recent slots every head keeps, up to a quarter of its average budget.
        kernel_slots: Width of the average pooling, odd.

    Raises:
        ValueError: The floor is not 0 to 1.
    """

    floor_share: float = 0.2
    window_slots: int = 32
    kernel_slots: int = 5
    name: str = "adakv"

    def __post_init__(self) -> None:
        """Refuse a floor above the whole."""
        if not 0 <= self.floor_share <= 1:
            raise ValueError(f"the floor {self.floor_share} is not 0 to 1")

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows that the fewest heads would keep."""
        if ledger.heads is None:
            return SnapKvPolicy(self.window_slots, self.kernel_slots).choose(ledger, count)
        check_count(count, ledger.held)
        return fewest_votes(ledger, self.keep_mask(ledger, ledger.held - count), count)

    def keep_mask(self, ledger: SlotLedger, n_keep: int) -> Mask:
        """Return each head's slots; heads of a layer compete, layers are alike."""
        heads = heads_of(ledger, n_keep)
        is_kept = always_kept(ledger, n_keep, self.window_slots)
        scores = average_pooled(heads.importance, self.kernel_slots)
        rank = ranks(scores, heads.is_held, is_kept)
        # A head's floor comes before any competition; kept slots rank first within it.
        n_floor = max(int(n_keep * self.floor_share), min(int(is_kept.sum()), n_keep))
        contested = np.where(rank < n_floor, np.inf, scores)
        flat = (heads.n_layers, 1, heads.n_heads * ledger.held)
        held_flat = heads.is_held.reshape(flat)
        by_layer = apportion(
            np.ones((heads.n_layers, 1)), total_of(heads, n_keep), held_flat.sum(axis=-1)
        )
        nothing = np.zeros(flat[-1], np.bool_)
        kept = top_slots(contested.reshape(flat), by_layer, held_flat, nothing)
        return kept.reshape(heads.is_held.shape)


def heads_of(ledger: SlotLedger, n_keep: int) -> HeadRecord:
    """Return the per-head record of a ledger.

    Raises:
        ValueError: There is none, or ``n_keep`` is out of range.
    """
    if ledger.heads is None:
        raise ValueError("this ledger keeps no record per head")
    if not 0 <= n_keep <= ledger.held:
        raise ValueError(f"cannot keep {n_keep} of {ledger.held} slots")
    return ledger.heads


def total_of(heads: HeadRecord, n_keep: int) -> int:
    """Return the head slots of a budget of ``n_keep`` slots a head."""
    return heads.n_layers * heads.n_heads * n_keep


def always_kept(ledger: SlotLedger, n_keep: int, window_slots: int) -> Mask:
    """Return the slots every head keeps: prompt and recent window."""
    window = newest(ledger, min(window_slots, n_keep // 4))
    kept: Mask = window | (ledger.keeping == Keeping.PROMPT)
    return kept


def fewest_votes(ledger: SlotLedger, mask: Mask, count: int) -> Indices:
    """Return the rows kept by the fewest heads, the less important at a tie, prompt last."""
    votes: Ints = mask.sum(axis=(0, 1))
    return take(eviction_order(ledger, votes, ledger.attention.importance), count)
