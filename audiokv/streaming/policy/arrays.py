"""Array types of the policy, and the one rule that turns milliseconds to slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

NO_SLOTS: Indices = np.empty(0, np.intp)
NO_SLOTS.flags.writeable = False


def slots_for(window_ms: int, slot_ms: int) -> int:
    """Return how many slots cover a window: rounded up, at least one.

    Args:
        window_ms: Length of the window in ms.
        slot_ms: Length of one slot of the model's cache in ms.

    Raises:
        ValueError: The window is negative or the slot has no length.
    """
    if window_ms < 0 or slot_ms <= 0:
        raise ValueError(f"{window_ms} ms cannot be covered by slots of {slot_ms} ms")
    return max(1, -(-window_ms // slot_ms))
