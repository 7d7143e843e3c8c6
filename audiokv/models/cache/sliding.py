"""What a cache does to the sliding layers of transformers, which bound themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.models.cache.rotary import KeyRotation


class SlidingLayer:
    """A sliding-window layer that can be measured, moved and rolled back.

    Args:
        layer: The `DynamicSlidingWindowLayer` of transformers.
        rotation: Returns the rotation of its keys, or None.
    """

    def __init__(
        self,
        layer: Any,  # noqa: ANN401  transformers' own layer, left as it is
        rotation: Callable[[], KeyRotation | None],
    ) -> None:
        self._layer = layer
        self._rotation = rotation

    @property
    def full_slots(self) -> int:
        """Slots it holds between steps once its window is full."""
        return int(self._layer.sliding_window) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the slots held."""
        if not self._layer.is_initialized:
            return 0
        return int(self._layer.keys.nbytes + self._layer.values.nbytes)

    def shift(self, by: int) -> None:
        """Move every slot and the counter by a number of positions."""
        if not self._layer.is_initialized:
            return
        rotation = self._rotation()
        if rotation is not None:
            keys = self._layer.keys
            self._layer.keys = rotation.rotate(keys, np.full(keys.shape[2], by))
        self._layer.cumulative_length += by

    def open_tail(self) -> None:
        """Keep what leaves the window until the tail is closed."""
        self._layer.activate_past_recording()

    def close_tail(self, n_dropped: int) -> None:
        """Drop the last positions and go back to the window, bit for bit as it was."""
        if self._layer.is_initialized:
            self._layer.crop(-n_dropped)
        self._layer.record_past = False
