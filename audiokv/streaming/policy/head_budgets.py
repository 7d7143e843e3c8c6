"""Dividing a whole number of slots among heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Ints, Mask


_ROUNDING = 1e-9


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
    caps_flat = caps.reshape(-1).astype(np.int64)
    total = min(int(total), int(caps_flat.sum()))
    exact = _in_proportion(weights.reshape(-1).astype(np.float64), float(total), caps_flat)
    shares = np.minimum(np.floor(exact + _ROUNDING).astype(np.int64), caps_flat)
    missing = total - int(shares.sum())
    remainder = np.where(shares < caps_flat, exact - shares, -np.inf)
    shares[np.argsort(-remainder, kind="stable")[:missing]] += 1  # the earlier part at a tie
    return shares.reshape(weights.shape)


def _in_proportion(weights: Floats, total: float, caps: Ints) -> Floats:
    """Divide a total of at most the caps' sum in proportion, before any rounding."""
    shares: Floats = np.zeros(len(weights))
    is_open = caps > 0
    left = total
    while left > 0:
        active = np.where(is_open, weights, 0.0)
        if active.sum() <= 0:
            active = is_open.astype(np.float64)
        active /= active.max()  # first, so that tiny weights do not overflow the ratio
        wanted = active * (left / active.sum())
        is_over = is_open & (wanted >= caps)
        if not is_over.any():
            return np.where(is_open, wanted, shares)
        shares[is_over] = caps[is_over]
        left -= float(caps[is_over].sum())
        is_open &= ~is_over
    return shares


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
