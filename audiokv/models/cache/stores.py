"""The slots that a group of heads of one layer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.cache.buffers import SlotBuffer
from audiokv.models.cache.quantized import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from audiokv.models.cache.rotary import KeyRotation

    Slots = NDArray[np.int64] | Sequence[int]


class _Precise:
    """Vectors in the model's own type."""

    def __init__(self, vectors: torch.Tensor) -> None:
        self._vectors = SlotBuffer(vectors)
        self.buffers = (self._vectors,)

    def read(self) -> torch.Tensor:
        return self._vectors.view

    def gather(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return self._vectors.gather(rows)

    def append(self, vectors: torch.Tensor) -> None:
        self._vectors.append(vectors)

    def write(self, row: int, vector: torch.Tensor) -> None:
        self._vectors.write(row, vector)


class _Int8:
    """Vectors as codes and scales; reads as the type they came in."""

    def __init__(self, vectors: torch.Tensor) -> None:
        codes, scales = quantize(vectors)
        self._dtype = vectors.dtype
        self._codes, self._scales = SlotBuffer(codes), SlotBuffer(scales)
        self.buffers = (self._codes, self._scales)

    def read(self) -> torch.Tensor:
        return dequantize(self._codes.view, self._scales.view, self._dtype)

    def gather(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return dequantize(self._codes.gather(rows), self._scales.gather(rows), self._dtype)

    def append(self, vectors: torch.Tensor) -> None:
        codes, scales = quantize(vectors)
        self._codes.append(codes)
        self._scales.append(scales)


class SlotStore:
    """Keys, values, positions and multiplicities of the slots of some heads.

    Slots are numbered from 0 by rising position. Those kept as int8 lie apart from the others, so
    the order of the vectors read is not the order of the numbers: `order` maps one to the other.

    Args:
        keys: Empty tensor of shape (batch, heads, 0, key_size); gives type, device and sizes.
        values: Empty tensor of shape (batch, heads, 0, value_size).
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._precise = (_Precise(keys), _Precise(values))
        self._int8 = (_Int8(keys), _Int8(values))
        self.positions: NDArray[np.int64] = np.empty(0, np.int64)
        self.multiplicity: NDArray[np.int32] = np.empty(0, np.int32)
        self.is_int8: NDArray[np.bool_] = np.empty(0, np.bool_)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        """Bytes of every tensor and array of the slots held."""
        return sum(buffer.nbytes for buffer in self._buffers()) + self._index_nbytes()

    @property
    def allocated_nbytes(self) -> int:
        """The same with the spare room of the buffers."""
        return sum(buffer.allocated_nbytes for buffer in self._buffers()) + self._index_nbytes()

    def order(self) -> NDArray[np.int64]:
        """Number of the slot behind each vector read; shape (held,)."""
        return np.concatenate((np.flatnonzero(self.is_int8), np.flatnonzero(~self.is_int8)))

    def keys(self) -> torch.Tensor:
        """Keys of the slots in `order`, shape (batch, heads, held, key_size)."""
        return self._read(0)

    def values(self) -> torch.Tensor:
        """Values of the slots in `order`, shape (batch, heads, held, value_size)."""
        return self._read(1)

    def append(self, keys: torch.Tensor, values: torch.Tensor, first_position: int) -> None:
        """Add slots at consecutive positions after all held ones.

        Args:
            keys: Shape (batch, heads, new, key_size).
            values: Shape (batch, heads, new, value_size).
            first_position: Position of the first new slot.
        """
        n_new = keys.shape[2]
        for part, vectors in zip(self._precise, (keys, values), strict=True):
            part.append(vectors)
        new = np.arange(first_position, first_position + n_new)
        self.positions = np.concatenate((self.positions, new))
        self.multiplicity = np.concatenate((self.multiplicity, np.ones(n_new, np.int32)))
        self.is_int8 = np.concatenate((self.is_int8, np.zeros(n_new, np.bool_)))

    def keep(self, slots: Slots) -> None:
        """Keep only the named slots; all others are gone and the rest is contiguous.

        Args:
            slots: Rising slot numbers.
        """
        kept = np.asarray(slots, np.int64)
        if len(kept) == len(self):
            return
        rows = self._rows(kept)
        in_int8 = self.is_int8[kept]
        for parts, chosen in ((self._precise, ~in_int8), (self._int8, in_int8)):
            self._keep_rows(parts, rows[chosen])
        self.positions = self.positions[kept]
        self.multiplicity = self.multiplicity[kept]
        self.is_int8 = in_int8

    def truncate(self, position: int) -> None:
        """Drop the slots at and after a position; the others stay bit for bit."""
        self.keep(np.arange(np.searchsorted(self.positions, position)))

    def quantize(self, slots: Slots) -> None:
        """Hold the named slots as int8 from now on."""
        chosen = np.asarray(slots, np.int64)
        self._move(chosen[~self.is_int8[chosen]], self._precise, self._int8)

    def promote(self, slots: Slots) -> None:
        """Hold the named slots in the model's type again, as exactly as int8 kept them."""
        chosen = np.asarray(slots, np.int64)
        self._move(chosen[self.is_int8[chosen]], self._int8, self._precise)

    def merge(
        self,
        runs: Sequence[Slots],
        positions: Sequence[int],
        rotation: KeyRotation | None,
    ) -> None:
        """Let each run of slots share one slot that holds the run's mean key and value.

        The shared slot counts for all it stands for (`multiplicity`). Keys are moved to its
        position before they are averaged, so that their rotary phases do not cancel.

        Args:
            runs: Disjoint runs of adjoining slot numbers, rising.
            positions: Position of each shared slot: after the slot before the run, and not after
                the run's last.
            rotation: Rotation of this layer's keys, or None where keys carry no position.
        """
        gone = np.zeros(len(self), np.bool_)
        firsts = np.array([run[0] for run in runs], np.int64)
        back_to_int8 = firsts[self.is_int8[firsts]]
        for run, position in zip(runs, positions, strict=True):
            chosen = np.asarray(run, np.int64)
            self.promote(chosen)
            weights = self.multiplicity[chosen]
            rows = self._rows(chosen)
            keys, values = (part.gather(rows) for part in self._precise)
            if rotation is not None:
                keys = rotation.rotate(keys, position - self.positions[chosen])
            for part, vectors in zip(self._precise, (keys, values), strict=True):
                part.write(int(rows[0]), _weighted_mean(vectors, weights))
            self.positions[chosen[0]] = position
            self.multiplicity[chosen[0]] = weights.sum()
            gone[chosen[1:]] = True
        self.quantize(back_to_int8)
        self.keep(np.flatnonzero(~gone))

    def shift(self, by: int, rotation: KeyRotation | None) -> None:
        """Move every slot by a number of positions, keys included."""
        if rotation is not None:
            for parts, chosen in ((self._precise, ~self.is_int8), (self._int8, self.is_int8)):
                part = parts[0]
                if len(part.buffers[0]):
                    moved = rotation.rotate(part.read(), np.full(int(chosen.sum()), by))
                    for buffer in part.buffers:
                        buffer.truncate(0)
                    part.append(moved)
        self.positions = self.positions + by

    def change_batch(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Apply a reordering, repetition or selection of batch rows."""
        for buffer in self._buffers():
            buffer.transform(change)

    def trim(self) -> None:
        """Give the buffers' spare room back."""
        for buffer in self._buffers():
            buffer.trim()

    def _read(self, which: int) -> torch.Tensor:
        precise, int8 = self._precise[which], self._int8[which]
        if not self.is_int8.any():
            return precise.read()
        return torch.cat((int8.read(), precise.read()), dim=2)

    def _buffers(self) -> list[SlotBuffer]:
        return [buffer for part in (*self._precise, *self._int8) for buffer in part.buffers]

    def _index_nbytes(self) -> int:
        return self.positions.nbytes + self.multiplicity.nbytes + self.is_int8.nbytes

    def _rows(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each slot within its part."""
        n_int8_before: NDArray[np.int64] = np.cumsum(self.is_int8) - self.is_int8
        rows = np.where(self.is_int8, n_int8_before, np.arange(len(self)) - n_int8_before)
        return rows[slots]

    @staticmethod
    def _keep_rows(parts: Sequence[_Precise | _Int8], rows: NDArray[np.int64]) -> None:
        is_prefix = np.array_equal(rows, np.arange(len(rows)))
        for part in parts:
            for buffer in part.buffers:
                if is_prefix:
                    buffer.truncate(len(rows))
                else:
                    buffer.keep(rows)

    def _move(
        self,
        slots: NDArray[np.int64],
        source: Sequence[_Precise | _Int8],
        target: Sequence[_Precise | _Int8],
    ) -> None:
        if not len(slots):
            return
        to_int8 = target is self._int8
        rows = self._rows(slots)
        for part, into in zip(source, target, strict=True):
            into.append(part.gather(rows))
        self._keep_rows(source, np.setdiff1d(np.arange(len(source[0].buffers[0])), rows))
        # The moved slots lie at the end of their new part; put it in slot order again.
        before = np.flatnonzero(self.is_int8 == to_int8)
        order = np.argsort(np.concatenate((before, slots)), kind="stable")
        self._keep_rows(target, order)
        self.is_int8[slots] = to_int8


def _weighted_mean(vectors: torch.Tensor, weights: NDArray[np.int32]) -> torch.Tensor:
    share = torch.from_numpy(weights / weights.sum()).to(vectors.device, torch.float64)
    return (vectors.double() * share[:, None]).sum(dim=2).to(vectors.dtype)
