"""How alike keys are to their mean, which some policies go by instead of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.cache.layers import SlotLayer


def key_similarity(
    producers: Sequence[SlotLayer],
    positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the cosine of each row's key to the mean key, averaged over layers and heads.

    Args:
        producers: The layers whose slots are managed.
        positions: Position of each row, rising; shape (held,).

    Returns:
        Shape (held,). A row counts for the heads that hold it.
    """
    total, n_heads = np.zeros(len(positions)), np.zeros(len(positions))
    for layer in producers:
        for store in layer.stores:
            keys = store.keys().float()
            directions = keys / keys.norm(dim=-1, keepdim=True).clamp_min(1e-12)
            mean = directions.mean(dim=2, keepdim=True)
            mean = mean / mean.norm(dim=-1, keepdim=True).clamp_min(1e-12)
            cosines = (directions * mean).sum(dim=-1).mean(dim=0)
            at = np.searchsorted(positions, store.positions[store.order()])
            total[at] += cosines.sum(dim=0).double().cpu().numpy()
            n_heads[at] += cosines.shape[0]
    return total / np.maximum(n_heads, 1)
