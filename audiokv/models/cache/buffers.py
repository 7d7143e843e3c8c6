"""Growable tensor of slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

# Spare room added when a buffer is full: one copy of the slots in 64 appends, and never more than
# this many slots of unused memory.
_BLOCK_SLOTS = 64


class SlotBuffer:
    """Tensor that grows and shrinks along its slot dimension without a copy for each slot.

    Args:
        slots: First content, shape (batch, heads, slots, size); its type and device are kept.
    """

    def __init__(self, slots: torch.Tensor) -> None:
        self._rows = slots.contiguous()
        self._held = slots.shape[2]

    def __len__(self) -> int:
        return self._held

    @property
    def view(self) -> torch.Tensor:
        """The slots held, shape (batch, heads, held, size); valid until the next change."""
        return self._rows[:, :, : self._held]

    @property
    def nbytes(self) -> int:
        """Bytes of the slots held."""
        return self.view.numel() * self._rows.element_size()

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of the memory behind the buffer, spare room included."""
        return self._rows.untyped_storage().nbytes()

    def append(self, slots: torch.Tensor) -> None:
        """Add slots at the end. Shape (batch, heads, new, size)."""
        grown = self._held + slots.shape[2]
        if grown > self._rows.shape[2]:
            self._allocate(self._held, grown + _BLOCK_SLOTS)
        self._rows[:, :, self._held : grown] = slots
        self._held = grown

    def truncate(self, held: int) -> None:
        """Drop every slot after the first ones; nothing is copied."""
        self._held = min(self._held, held)

    def write(self, row: int, slot: torch.Tensor) -> None:
        """Replace one slot. Shape (batch, heads, size)."""
        self._rows[:, :, row] = slot

    def gather(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Return a copy of some slots, shape (batch, heads, len(rows), size)."""
        return self.view.index_select(2, self._index(rows))

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Keep only the named slots, in the order given, close together again."""
        kept = self.gather(rows)
        self._held = len(rows)
        if self._rows.shape[2] > self._held + 2 * _BLOCK_SLOTS:
            self._allocate(0, self._held + _BLOCK_SLOTS)
        self._rows[:, :, : self._held] = kept

    def trim(self) -> None:
        """Give spare room back."""
        self._allocate(self._held, self._held)

    def transform(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace the content by a function of it; the number of slots must stay."""
        self._rows = change(self.view).contiguous()

    def _allocate(self, n_copied: int, capacity: int) -> None:
        batch, heads, _, size = self._rows.shape
        rows = self._rows.new_empty((batch, heads, capacity, size))
        rows[:, :, :n_copied] = self._rows[:, :, :n_copied]
        self._rows = rows

    def _index(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(rows).to(self._rows.device)
