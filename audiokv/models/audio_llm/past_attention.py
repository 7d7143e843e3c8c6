"""Attention of audio frames to themselves and a fixed number of frames before them.

Query and key know each other's distance, not their positions, so a stream carries on its last keys
and values and nothing else. As in the Universal Speech Model (Zhang et al., 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def attend_to_past(  # noqa: PLR0913  the parts of one formula
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    distances: torch.Tensor,
    *,
    softcap: torch.Tensor,
    n_before: Sequence[int],
) -> torch.Tensor:
    """Attend from each new frame to itself and those before it.

    Args:
        queries: Scaled, shape (batch, n, heads, size).
        keys: Those of the past and then of the new frames, shape (batch, past + n, heads, size).
        values: Likewise.
        distances: What a query is multiplied with for each distance, farthest first, shape
            (past + 1, heads, size).
        softcap: Limit of the logits.
        n_before: Frames of each stream before these; a past that never was is not looked at.

    Returns:
        Shape (batch, n, heads * size).
    """
    span, n_frames = distances.shape[0], queries.shape[1]
    # One window a query, oldest first: shape (batch, n, heads, size, past + 1).
    logits = (queries.unsqueeze(-2) @ keys.unfold(1, span, 1)).squeeze(-2)
    logits = logits + torch.einsum("bnhd,shd->bnhs", queries, distances)
    logits = torch.tanh(logits / softcap) * softcap
    n_missing = [span - 1 - n for n in n_before]  # of each first query's window
    if max(n_missing) > 0:
        at = torch.arange(span, device=queries.device)
        ordinals = torch.arange(n_frames, device=queries.device)
        first = torch.tensor(n_missing, device=queries.device)[:, None] - ordinals
        is_heard = (at >= first[..., None])[:, :, None]
        logits = logits.masked_fill(~is_heard, torch.finfo(logits.dtype).min)
    weights = logits.softmax(dim=-1, dtype=torch.float32).to(values.dtype)
    windows = values.unfold(1, span, 1).transpose(-1, -2)
    return (weights.unsqueeze(-2) @ windows).squeeze(-2).flatten(2)
