"""Keeping the most of a stretch of time that a number of slots can: denser where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Ints, Mask

_NOTHING = 1e-12
_ROUNDING = 1e-9


def weighted_cover(start_ms: Ints, end_ms: Ints, weights: Floats, n_keep: int) -> Mask:
    """Choose slots so that their density over time follows the weights.

    Each slot stands for the time since the slot before it, gaps that earlier choices left
    included, so that thinning again and again stays even. No slot counts for more than one: what
    a dense stretch cannot take goes to the others in proportion.

    Args:
        start_ms: Start of each slot, never falling, shape (n,).
        end_ms: End of each slot.
        weights: How much each slot's time matters, over 0.
        n_keep: How many to choose; all where there are no more.

    Returns:
        Mask of shape (n,) with ``n_keep`` chosen.
    """
    n_slots = len(start_ms)
    if n_keep >= n_slots:
        return np.ones(n_slots, np.bool_)
    if n_keep <= 0:
        return np.zeros(n_slots, np.bool_)
    since_ms = np.diff(end_ms, prepend=start_ms[0])
    shares = _capped_shares(weights * np.maximum(since_ms, 1), n_keep)
    # A slot is chosen whenever the sum of shares reaches a whole number.
    total = np.cumsum(shares)
    quota = np.floor(total * (n_keep / total[-1]) + _ROUNDING)
    chosen: Mask = np.diff(quota, prepend=0) > 0
    return chosen


def _capped_shares(values: Floats, total: int) -> Floats:
    """Divide a total in proportion to values, none getting more than one."""
    is_full = np.zeros(len(values), np.bool_)
    shares: Floats = values * (total / float(values.sum()))
    while (over := (shares > 1) & ~is_full).any():
        is_full |= over
        left = total - np.count_nonzero(is_full)
        rest = max(float(values[~is_full].sum()), _NOTHING)
        shares = np.where(is_full, 1.0, values * (left / rest))
    capped: Floats = np.minimum(shares, 1.0)
    return capped
