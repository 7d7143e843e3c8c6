"""A guaranteed share of the cache for every language of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.labels import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Indices, Mask


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

    def defer(self, order: Indices, languages: NDArray[np.int16], n_keep: int) -> Mask:
        """Say which slots of an eviction order are within their language's share.

        Args:
            order: Candidate rows, those to evict first in front.
            languages: Language number of every held row, guarded ones included; 0 is unknown and
                has no share.
            n_keep: How many rows stay.

        Returns:
            Mask over ``order``: true for slots that should leave only after all others.
        """
        held = np.bincount(languages)
        known = [number for number in np.flatnonzero(held) if number != UNKNOWN]
        is_deferred = np.zeros(len(order), np.bool_)
        if len(known) < 2:  # noqa: PLR2004  one language has nobody to be protected from
            return is_deferred
        guaranteed = int(n_keep * min(self.share, 1 / len(known)))
        ordered = languages[order]
        for number in known:
            places = np.flatnonzero(ordered == number)
            n_free = max(0, int(held[number]) - guaranteed)
            is_deferred[places[n_free:]] = True
        return is_deferred
