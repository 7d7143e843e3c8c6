"""Audio-critical heads: how often a head looks at the word that is being said.

After the AudioKV paper: at each step of a word, the share of a head's most attended positions that
lie in the word's span, ``|TopK & span(word)| / K`` with K = 24; a head's score is the mean over all
steps. Positions behind the audio count as positions, so that a head that rests on them scores low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TOP_K = 24


def hit_ratios(
    attention: NDArray[np.float32], first_slot: int, end_slot: int, top_k: int = TOP_K
) -> Floats:
    """Return each head's share of its top positions that lie in a span.

    Args:
        attention: Shape (layers, heads, steps, slots).
        first_slot: First slot of the span.
        end_slot: The slot behind its last.
        top_k: How many positions count; fewer where there are fewer.

    Returns:
        Shape (layers, heads, steps), 0 to 1.
    """
    n_top = min(top_k, attention.shape[-1])
    top = np.argpartition(attention, -n_top, axis=-1)[..., -n_top:]
    ratios: Floats = ((top >= first_slot) & (top < end_slot)).mean(axis=-1)
    return ratios


class HitTally:
    """Gathers the hit ratios of many steps.

    Args:
        n_layers: Layers of the decoder.
        n_heads: Heads of a layer.
    """

    def __init__(self, n_layers: int, n_heads: int) -> None:
        self._total = np.zeros((n_layers, n_heads))
        self.n_steps = 0

    def add(self, ratios: Floats) -> None:
        """Take in steps, shape (layers, heads, steps)."""
        self._total += ratios.sum(axis=-1)
        self.n_steps += ratios.shape[-1]

    def join(self, other: HitTally) -> None:
        """Take in another tally's steps."""
        self._total += other._total
        self.n_steps += other.n_steps

    @property
    def scores(self) -> Floats:
        """Mean hit ratio of each head, shape (layers, heads); 0 before the first step."""
        return self._total / max(1, self.n_steps)


def rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's rank correlation of two sets of scores, -1 to 1; 0 where one is constant.

    Args:
        one: Scores, any shape.
        other: Scores of the same heads.
    """
    first, second = (_ranks(scores.reshape(-1)) for scores in (one, other))
    spread = first.std() * second.std()
    if not spread:
        return 0.0
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread)


def _ranks(values: Floats) -> Floats:
    """Return ranks from 0, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = ((ends - counts + ends - 1) / 2)[inverse]
    return ranks
