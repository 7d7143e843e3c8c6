"""The seams of the policy: how scores are smoothed, and which slots leave.

What a policy may read from the ledger, besides the rows' own attributes:

- ``ledger.score``: the speech-aware score (only set where a ``Scorer`` runs; 0 otherwise);
- ``ledger.attention``: importance, accumulated, latest and windowed attention, when a slot was
  last used, how many probes saw it, and how close its key is to the mean key;
- ``ledger.heads``: importance and possession as (layers, heads, slots), or None.

Rows that no probe has seen carry zeros there; ``ledger.attention.is_observed`` tells them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Mask
    from audiokv.streaming.policy.ledger import SlotLedger


class Smoother(Protocol):
    """Takes the noise out of scores along the slot axis. Pure."""

    def smooth(self, values: Floats) -> Floats:
        """Return smoothed scores.

        Args:
            values: Scores in time order, shape (..., n), finite; n may be 0.

        Returns:
            Same shape. A constant input comes back unchanged.
        """


class EvictionPolicy(Protocol):
    """Chooses the slots that leave. Pure: equal ledgers give equal choices."""

    @property
    def name(self) -> str:
        """Name in the registry."""

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows to evict.

        Args:
            ledger: All held slots; not changed.
            count: How many must leave, 0 to ``ledger.held``.

        Returns:
            Exactly ``count`` distinct rows, rising. Only the full cache returns fewer: none.

        Raises:
            ValueError: ``count`` is out of range.
        """


@runtime_checkable
class HeadwisePolicy(EvictionPolicy, Protocol):
    """A policy that can also let each head keep other slots, at the same total.

    Such a choice is for a cache that masks per head; ``choose`` is the choice for one that
    cannot.
    """

    def keep_mask(self, ledger: SlotLedger, n_keep: int) -> Mask:
        """Return which head keeps which slot.

        Args:
            ledger: All held slots, with ``ledger.heads``; not changed.
            n_keep: Slots a head keeps on average.

        Returns:
            Shape (layers, heads, held). Only slots the head holds now; layers * heads * n_keep in
            total, or all that is held where that is less.

        Raises:
            ValueError: ``n_keep`` is out of range or the ledger has no per-head record.
        """


@runtime_checkable
class MergingPolicy(EvictionPolicy, Protocol):
    """A policy whose slots stand for the evicted ones around them, where the cache can do so.

    Thinning a stretch takes attention away from it, since a softmax counts slots. A slot that
    stands for m slots has log m added to its attention logit and holds their mean, so that each
    stretch of time keeps its weight.

    Attributes:
        max_merged_slots: Most slots that one slot may stand for; 1 for none but itself.
    """

    max_merged_slots: int
