"""One attribute of all slots as an array with spare capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from audiokv.streaming.policy.arrays import Indices

Item_co = TypeVar("Item_co", bound=np.generic, covariant=True)

FIRST_CAPACITY_SLOTS = 64


class Column(Generic[Item_co]):
    """Values of one attribute, one a slot along the last axis, in the order of the ledger.

    Capacity doubles when it runs out and is never given back, so a ledger under a budget stops
    allocating once it is full.

    Args:
        item: Numpy scalar type of the values.
        leading: Shape in front of the slot axis, such as (layers, heads).
    """

    __slots__ = ("_array", "_rows")

    def __init__(self, item: type[Item_co], leading: tuple[int, ...] = ()) -> None:
        self._array: NDArray[Item_co] = np.zeros((*leading, FIRST_CAPACITY_SLOTS), item)
        self._rows = self._view(0)

    @property
    def rows(self) -> NDArray[Item_co]:
        """Read-only view of the held values, shape (*leading, held)."""
        return self._rows

    @property
    def capacity_slots(self) -> int:
        """Slots that fit without allocating."""
        return int(self._array.shape[-1])

    @property
    def n_bytes(self) -> int:
        """Bytes allocated, spare capacity included."""
        return self._array.nbytes

    def append(self, values: ArrayLike, n_slots: int) -> None:
        """Add values for new slots.

        Args:
            values: Broadcasts to (*leading, n_slots).
            n_slots: How many slots join.
        """
        held = self._rows.shape[-1]
        if held + n_slots > self.capacity_slots:
            roomy = np.zeros(
                (*self._array.shape[:-1], max(2 * self.capacity_slots, held + n_slots)),
                self._array.dtype,
            )
            roomy[..., :held] = self._rows
            self._array = roomy
        self._array[..., held : held + n_slots] = values
        self._rows = self._view(held + n_slots)

    def write(self, values: ArrayLike) -> None:
        """Replace all held values; ``values`` broadcasts to (*leading, held)."""
        self._array[..., : self._rows.shape[-1]] = values

    def write_at(self, indices: Indices, values: ArrayLike) -> None:
        """Replace the values of some slots; ``values`` broadcasts to (*leading, len(indices))."""
        self._array[..., indices] = values

    def write_plane(self, plane: int, values: ArrayLike) -> None:
        """Replace the held values of one index of the first leading axis."""
        self._array[plane, ..., : self._rows.shape[-1]] = values

    def keep(self, indices: Indices) -> None:
        """Hold only these slots from now on, in this order."""
        self._array[..., : len(indices)] = self._rows.take(indices, axis=-1)
        self._rows = self._view(len(indices))

    def _view(self, held: int) -> NDArray[Item_co]:
        view = self._array[..., :held]
        view.flags.writeable = False
        return view
