"""Dividing a whole number of slots among heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Ints, Mask


def apportion(weights: Floats, total: int, caps: Ints) -> Ints:
    """Divide a total in proportion to weights, exactly and under caps.

    Fractions are settled by largest remainder; what a cap leaves over goes to the others.

    Args:
        weights: At least 0, any shape; all zero counts as even.
        total: Whole number to divide, at least 0.
        caps: Most each part may take, same shape, at least 0.

    Returns:
        Whole numbers of the same shape, each at most its cap. They sum to ``total``, or to the sum
        of the caps where that is less.
    """
    shares = np.zeros(weights.size, np.int64)
    caps_flat = caps.reshape(-1).astype(np.int64)
    weights_flat = weights.reshape(-1).astype(np.float64)
    left = min(int(total), int(caps_flat.sum()))
    while left:
        is_open = shares < caps_flat
        active = np.where(is_open, weights_flat, 0.0)
        if active.sum() <= 0:
            active = is_open.astype(np.float64)
        active /= active.max()  # first, so that tiny weights do not overflow the ratio
        wanted = active * (left / active.sum())
        grant = np.minimum(np.floor(wanted).astype(np.int64), caps_flat - shares)
        if not grant.any():
            # Less than one each: one apiece by largest remainder, the earlier part at a tie.
            by_remainder = np.argsort(-np.where(is_open, wanted, -1.0), kind="stable")
            grant[by_remainder[: min(left, int(np.count_nonzero(is_open)))]] = 1
        shares += grant
        left -= int(grant.sum())
    return shares.reshape(weights.shape)


def top_slots(scores: Floats, budgets: Ints, is_held: Mask, is_kept: Mask) -> Mask:
    """Let each head keep its best slots.

    Args:
        scores: Shape (layers, heads, held).
        budgets: Slots each head keeps, shape (layers, heads), at most what it holds.
        is_held: What each head holds, shape (layers, heads, held).
        is_kept: Slots to take before any score counts, shape (held,).

    Returns:
        Shape (layers, heads, held), exactly ``budgets`` true along the last axis.
    """
    return is_held & (ranks(scores, is_held, is_kept) < budgets[..., None])


def ranks(scores: Floats, is_held: Mask, is_kept: Mask) -> Indices:
    """Rank slots within each head, 0 for the best: kept first, then by score, unheld last.

    At a tie the newer slot ranks better.
    """
    tiers = np.where(is_held, np.where(is_kept, np.inf, scores), -np.inf)
    best_first: Indices = (
        tiers.shape[-1] - 1 - np.argsort(-tiers[..., ::-1], axis=-1, kind="stable")
    )
    rank = np.empty_like(best_first)
    np.put_along_axis(rank, best_first, np.arange(tiers.shape[-1]), axis=-1)
    return rank
