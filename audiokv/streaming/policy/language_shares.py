"""A guaranteed share of the cache for every language of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.head_budgets import apportion
from audiokv.streaming.policy.labels import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Mask


@dataclass(frozen=True, slots=True)
class LanguageShares:
    """Keeps each language's best slots up to its share, so that it finds its context on return.

    Attributes:
        share: Part of the slots that stay which each language is guaranteed, 0 (off) up to 1.
            With so many languages that the shares exceed the whole, they divide it evenly.

    Raises:
        ValueError: The share is out of range.
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        """Refuse a share that is none."""
        if not 0 <= self.share <= 1:
            raise ValueError(f"the language share {self.share} is not 0 to 1")

    def quotas(self, languages: NDArray[np.int16], stays: Mask) -> dict[int, int]:
        """Say how many slots of each language stay where a choice denies one its share.

        Args:
            languages: Language number of every candidate; 0 is unknown and has no share.
            stays: A choice among the candidates, same shape.

        Returns:
            Slots for each language number, as many in total as were chosen; empty where the
            choice gives every language its share already.
        """
        available = np.bincount(languages)
        chosen = np.bincount(languages[stays], minlength=len(available))
        known = [int(number) for number in np.flatnonzero(available) if number != UNKNOWN]
        if len(known) < 2:  # noqa: PLR2004  one language has nobody to be protected from
            return {}
        n_keep = int(np.count_nonzero(stays))
        floors = np.zeros_like(available)
        guaranteed = int(n_keep * min(self.share, 1 / len(known)))
        floors[known] = np.minimum(guaranteed, available[known])
        if (chosen >= floors).all():
            return {}
        raised = np.maximum(chosen, floors)
        above = raised - floors
        taken = apportion(above.astype(np.float64), int(raised.sum()) - n_keep, above)
        return {
            int(number): int(raised[number] - taken[number]) for number in np.flatnonzero(available)
        }
