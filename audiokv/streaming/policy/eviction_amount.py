"""How many slots to evict at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats


@dataclass(frozen=True, slots=True)
class EvictionAmount:
    """The share r = base_rate + sharpness * (1 - H/Hmax) of the held slots, H their entropy.

    When few slots hold most of the importance, many others can go at once; when importance is
    spread evenly, few should.

    Attributes:
        base_rate: Share evicted at full entropy; what one eviction is worth its cost for.
        sharpness: The method's lambda: 0.2, in a meeting 0.15, in a conversation 0.25.

    Raises:
        ValueError: A rate out of range.
    """

    base_rate: float = 0.01
    sharpness: float = 0.2

    def __post_init__(self) -> None:
        """Refuse rates that could exceed the whole."""
        if not (self.base_rate >= 0 and self.sharpness >= 0):
            raise ValueError("base rate and sharpness must be at least 0")
        if self.base_rate + self.sharpness > 1:
            raise ValueError("base rate and sharpness together must be at most 1")

    def slots(self, importance: Floats) -> int:
        """Return how many slots to evict, rounded up.

        Args:
            importance: Of each candidate, not negative, shape (n,). All zero counts as even.

        Returns:
            0 to n; 0 only without candidates or at rate 0.
        """
        return math.ceil(len(importance) * self.rate(importance) - 1e-9)

    def rate(self, importance: Floats) -> float:
        """Return r for these importances."""
        return self.base_rate + self.sharpness * (1 - relative_entropy(importance))


def relative_entropy(importance: Floats) -> float:
    """Return H/Hmax of values taken as a distribution: 1 if even (or fewer than two), 0 if one."""
    total = float(importance.sum())
    if len(importance) < 2 or total <= 0:  # noqa: PLR2004  one value has no spread
        return 1.0
    p = importance / total
    p = p[p > 0]
    entropy = -float((p * np.log(p)).sum())
    return min(1.0, max(0.0, entropy / math.log(len(importance))))
