"""Importance of slots: the attention that the last queries of a step gave them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable


class ReaderAggregation(StrEnum):
    """How the layers that share one producer's keys count together."""

    MEAN = "mean"
    MAX = "max"


class AttentionProbe:
    """Measures the attention that each slot of each head received in one step.

    Only the last queries of a step are recomputed, one product of a few rows with the keys: the
    kernels that compute attention never show their weights.

    Args:
        n_queries: How many of a step's last queries are asked.
        readers: How layers that read the same keys are combined.

    Raises:
        ValueError: `n_queries` is not positive.
    """

    def __init__(
        self,
        n_queries: int = 4,
        readers: ReaderAggregation | str = ReaderAggregation.MEAN,
    ) -> None:
        if n_queries < 1:
            raise ValueError(f"n_queries is {n_queries}; at least one query must be asked.")
        self.n_queries = n_queries
        self._readers = ReaderAggregation(readers)
        self._received: dict[Hashable, torch.Tensor] = {}
        self._n_readers: dict[Hashable, int] = {}

    def observe(  # noqa: PLR0913  one attention call has this many inputs
        self,
        producer: Hashable,
        query: torch.Tensor,
        keys: torch.Tensor,
        mask: torch.Tensor | None,
        *,
        scaling: float,
        softcap: float | None = None,
    ) -> None:
        """Take in one attention call of a step.

        Args:
            producer: What the keys belong to; calls with the same producer are its readers.
            query: Shape (batch, query_heads, queries, size).
            keys: Shape (batch, key_heads, rows, size).
            mask: Boolean or additive, broadcasts to (batch, query_heads, asked, rows), where
                asked is `n_queries` or all of fewer queries; None where they see every row.
            scaling: Factor of the logits.
            softcap: Bound of the logits where the model has one.
        """
        received = attention_received(
            query[:, :, -self.n_queries :], keys, mask, scaling=scaling, softcap=softcap
        )
        before = self._received.get(producer)
        if before is not None:
            is_max = self._readers is ReaderAggregation.MAX
            received = torch.maximum(before, received) if is_max else before + received
        self._received[producer] = received
        self._n_readers[producer] = self._n_readers.get(producer, 0) + 1

    def take(self) -> dict[Hashable, torch.Tensor]:
        """Return and forget what was received since the last call.

        Returns:
            For each producer a float32 tensor of shape (key_heads, rows): attention summed over
            the query heads that share a key head, averaged over the asked queries, and the mean
            or maximum over readers. Rows are in the order of the keys.
        """
        taken = self._received
        if self._readers is ReaderAggregation.MEAN:
            taken = {key: total / self._n_readers[key] for key, total in taken.items()}
        self._received, self._n_readers = {}, {}
        return taken


def attention_received(
    query: torch.Tensor,
    keys: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Return the attention each row received: grouped heads summed, queries and batch averaged.

    Args:
        query: Shape (batch, query_heads, queries, size).
        keys: Shape (batch, key_heads, rows, size).
        mask: Boolean or additive, broadcasts to (batch, query_heads, queries, rows); or None.
        scaling: Factor of the logits.
        softcap: Bound of the logits where the model has one.

    Returns:
        Shape (key_heads, rows), float32. Each head's row sums to query_heads / key_heads.
    """
    batch, n_query_heads, n_queries, size = query.shape
    n_key_heads, n_rows = keys.shape[1], keys.shape[2]
    # Queries that share a key head are stacked, so that keys are not repeated for them.
    grouped = query.reshape(batch, n_key_heads, -1, size)
    logits = (grouped @ keys.transpose(2, 3)).float() * scaling
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is not None:
        logits = logits.view(batch, n_query_heads, n_queries, n_rows)
        if mask.dtype == torch.bool:
            logits = logits.masked_fill(~mask, float("-inf"))
        else:
            logits = logits + mask
        logits = logits.view(batch, n_key_heads, -1, n_rows)
    # A query that is itself padding sees nothing and gives nothing.
    received = logits.softmax(dim=-1).nan_to_num(0.0).sum(dim=(0, 2))
    return received / (batch * n_queries)
