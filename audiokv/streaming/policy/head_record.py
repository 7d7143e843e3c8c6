"""Importance and possession per layer and head, for policies whose heads keep different slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Floats, Indices, Mask


class HeadRecord:
    """A matrix (layers, heads, slots) of importance, and which head still holds which slot.

    Layers are those whose cache is evicted, in model order; heads are key/value heads. A slot that
    a head has dropped cannot come back to it. A slot that no head holds should leave the ledger.

    Args:
        n_layers: Evicted layers.
        n_heads: Key/value heads of each.

    Raises:
        ValueError: A count below one.
    """

    def __init__(self, n_layers: int, n_heads: int) -> None:
        if n_layers < 1 or n_heads < 1:
            raise ValueError(f"{n_layers} layers of {n_heads} heads hold nothing")
        self.n_layers = n_layers
        self.n_heads = n_heads
        self._importance = Column(np.float64, (n_layers, n_heads))
        self._is_held = Column(np.bool_, (n_layers, n_heads))

    @property
    def importance(self) -> Floats:
        """Exponentially accumulated attention, shape (layers, heads, held)."""
        return self._importance.rows

    @property
    def is_held(self) -> Mask:
        """Whether the head holds the slot, shape (layers, heads, held)."""
        return self._is_held.rows

    @property
    def n_bytes(self) -> int:
        """Bytes allocated, spare capacity included."""
        return self._importance.n_bytes + self._is_held.n_bytes

    def append(self, n_slots: int) -> None:
        """Add slots that every head holds and no probe has seen."""
        self._importance.append(0.0, n_slots)
        self._is_held.append(True, n_slots)

    def observe(self, weights: Floats, is_first: Mask, alpha: float) -> None:
        """Take in one probe.

        Args:
            weights: Attention each slot received from each head, shape (layers, heads, held).
            is_first: Slots no probe has seen before, shape (held,); their weight is taken whole.
            alpha: Weight of this probe, over 0 and up to 1.

        Raises:
            ValueError: Wrong shape, or a weight that is negative or not finite.
        """
        if weights.shape != self._importance.rows.shape:
            raise ValueError(
                f"{weights.shape} attention weights for heads {self._importance.rows.shape}"
            )
        if weights.size and not (weights.min() >= 0 and np.isfinite(weights.max())):
            raise ValueError("attention weights must be finite and at least 0")
        mix: NDArray[np.float64] = np.where(is_first, 1.0, alpha)
        self._importance.write(self._importance.rows + mix * (weights - self._importance.rows))

    def hold_only(self, mask: Mask) -> None:
        """Let each head drop what the mask leaves out.

        Args:
            mask: Slots to keep, shape (layers, heads, held); what a head lost before stays lost.
        """
        self._is_held.write(self._is_held.rows & mask)

    def orphans(self) -> Indices:
        """Return the slots that no head holds, rising: they should leave the ledger."""
        return np.flatnonzero(~self._is_held.rows.any(axis=(0, 1)))

    def absorb(self, into: Indices, absorbed: Indices) -> None:
        """Add the importance of slots that are about to share another slot to that slot."""
        summed = self._importance.rows.copy()
        by_slot = np.moveaxis(summed, -1, 0)
        np.add.at(by_slot, into, by_slot[absorbed])
        self._importance.write(summed)

    def keep(self, indices: Indices) -> None:
        """Hold only these slots from now on."""
        self._importance.keep(indices)
        self._is_held.keep(indices)
