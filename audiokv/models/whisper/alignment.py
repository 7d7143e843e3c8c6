"""When each token was spoken, from the cross-attention of the alignment heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOT_MS = 20
_MEDIAN_SLOTS = 7


def token_starts_ms(
    attention: NDArray[np.float32], held: NDArray[np.intp] | None = None
) -> NDArray[np.int64]:
    """Return the time at which each output token begins.

    The heads' weights are normalised over the tokens, smoothed along time, averaged and followed by
    dynamic time warping, as in the word timing published with Whisper (Radford et al., 2022).

    Args:
        attention: Shape (heads, tokens, slots); row i is the attention with which token i was
            predicted, slots only of real audio. The last row belongs to the end of the text.
        held: Slots the model could look at, rising, or None for all. The others are left out:
            their zeros would pass for audio that no token was spoken in.

    Returns:
        Shape (tokens,), ms from the start of the window, never falling.
    """
    if held is not None:
        attention = attention[..., held]
    n_tokens, n_slots = attention.shape[1:]
    if n_slots == 0:
        return np.zeros(n_tokens, dtype=np.int64)
    mean = attention.mean(axis=1, keepdims=True)
    spread = attention.std(axis=1, keepdims=True) + 1e-8
    matrix = _median_along_time((attention - mean) / spread).mean(axis=0)
    starts = warp(-matrix)
    return (starts if held is None else held[starts]) * SLOT_MS


def _median_along_time(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    half = _MEDIAN_SLOTS // 2
    if weights.shape[-1] <= half:
        return weights
    padded = np.pad(weights, ((0, 0), (0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _MEDIAN_SLOTS, axis=-1)
    median: NDArray[np.float32] = np.partition(windows, half, axis=-1)[..., half]
    return median


def warp(cost: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the first slot of each token on the cheapest monotonic path.

    Args:
        cost: Of each slot for each token, shape (tokens, slots).

    Returns:
        Shape (tokens,), never falling.
    """
    # Each row needs the running minimum of its own entries; with prefix sums that is one
    # ``minimum.accumulate`` a row instead of a loop over every cell.
    n_tokens, n_slots = cost.shape
    total = np.full((n_tokens + 1, n_slots + 1), np.inf)
    total[0, 0] = 0.0
    for i in range(n_tokens):
        entered = np.minimum(total[i, :-1], total[i, 1:])
        sums = np.cumsum(cost[i], dtype=np.float64)
        before = np.concatenate(([0.0], sums[:-1]))
        total[i + 1, 1:] = sums + np.minimum.accumulate(entered - before)
    starts = np.zeros(n_tokens, dtype=np.int64)
    i, j = n_tokens, n_slots
    while i > 0 and j > 0:
        starts[i - 1] = j - 1
        diagonal, up, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        if diagonal <= up and diagonal <= left:
            i, j = i - 1, j - 1
        elif up <= left:
            i -= 1
        else:
            j -= 1
    return starts
