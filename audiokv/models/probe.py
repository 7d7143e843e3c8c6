"""Importance of slots: the attention that the last queries of a step gave them."""

from __future__ import annotations

from enum import StrEnum

import torch


class ReaderAggregation(StrEnum):
    """How the layers that share one producer's keys count together."""

    MEAN = "mean"
    MAX = "max"


class AttentionProbe:
    """Measures the attention that each slot of each head received in one step.

    Only the last queries of a step are asked. A short step is computed with its weights in the
    open; of a longer one the last few are computed a second time, since the kernels for long
    steps never show theirs.

    Args:
        n_queries: How many of a step's last queries are asked.
        readers: How layers that read the same keys are combined.

    Raises:
        ValueError: `n_queries` is not positive, or there is no such way to combine.
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
        self._received: dict[int, torch.Tensor] = {}
        self._n_readers: dict[int, int] = {}

    def observe(self, producer: int, weights: torch.Tensor) -> None:
        """Take in one attention call of a step.

        Args:
            producer: What the keys belong to; calls with the same producer are its readers.
            weights: As `attention_weights` gives them.
        """
        received = attention_received(weights.detach())
        before = self._received.get(producer)
        if before is not None:
            is_max = self._readers is ReaderAggregation.MAX
            received = torch.maximum(before, received) if is_max else before + received
        self._received[producer] = received
        self._n_readers[producer] = self._n_readers.get(producer, 0) + 1

    def take(self) -> dict[int, torch.Tensor]:
        """Return and forget what was received since the last call.

        Returns:
            For each producer a float32 tensor of shape (key_heads, rows): the mean over the asked
            queries and the heads that share a key head, and the mean or maximum over readers.
            Rows are in the order of the keys.
        """
        taken = self._received
        if self._readers is ReaderAggregation.MEAN:
            taken = {key: total / self._n_readers[key] for key, total in taken.items()}
        self._received, self._n_readers = {}, {}
        return taken


def attention_weights(
    query: torch.Tensor,
    keys: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Return the weight that each query gives each row.

    Args:
        query: Shape (batch, query_heads, queries, size).
        keys: Shape (batch, key_heads, rows, size).
        mask: Boolean or additive, broadcasts to (batch, query_heads, queries, rows); or None.
        scaling: Factor of the logits.
        softcap: Bound of the logits where the model has one.

    Returns:
        Shape (batch, key_heads, group * queries, rows), float32, group being the query heads that
        share a key head. A query that sees nothing gives nothing; all others give 1 in total.
    """
    batch, n_query_heads, n_queries, size = query.shape
    n_key_heads, n_rows = keys.shape[1], keys.shape[2]
    # Queries that share a key head are stacked, so that keys are not repeated for them.
    grouped = query.reshape(batch, n_key_heads, -1, size)
    logits = (grouped @ keys.transpose(2, 3)).float() * scaling
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is None:
        return logits.softmax(dim=-1)
    logits = logits.view(batch, n_query_heads, n_queries, n_rows)
    is_boolean = mask.dtype == torch.bool
    logits = logits.masked_fill(~mask, float("-inf")) if is_boolean else logits + mask
    return logits.softmax(dim=-1).nan_to_num(0.0).view(batch, n_key_heads, -1, n_rows)


def of_last_queries(weights: torch.Tensor, n_queries: int, n_last: int) -> torch.Tensor:
    """Return the weights of the last queries of each head.

    Args:
        weights: Shape (batch, key_heads, group * n_queries, rows).
        n_queries: Queries of each head.
        n_last: How many of them are wanted; all where there are fewer.

    Returns:
        Shape (batch, key_heads, group * min(n_last, n_queries), rows).
    """
    if n_last >= n_queries:
        return weights
    batch, n_key_heads, _, n_rows = weights.shape
    by_query = weights.view(batch, n_key_heads, -1, n_queries, n_rows)
    return by_query[:, :, :, -n_last:].reshape(batch, n_key_heads, -1, n_rows)


def attention_received(weights: torch.Tensor) -> torch.Tensor:
    """Return the mean weight that each row received.

    Args:
        weights: Shape (batch, key_heads, group * queries, rows).

    Returns:
        Shape (key_heads, rows). Each head's row sums to 1 where every query sees something.
    """
    if weights.shape[0] == 1 and weights.shape[2] == 1:
        return weights[0, :, 0]
    return weights.mean(dim=(0, 2))


def attended_values(weights: torch.Tensor, values: torch.Tensor, n_queries: int) -> torch.Tensor:
    """Return the output of an attention whose weights are known.

    Args:
        weights: Shape (batch, key_heads, group * queries, rows).
        values: Shape (batch, key_heads, rows, value_size).
        n_queries: Queries of each head.

    Returns:
        Shape (batch, queries, query_heads, value_size), as transformers wants it.
    """
    output = weights.to(values.dtype) @ values
    output = output.view(values.shape[0], -1, n_queries, values.shape[-1])
    return output.transpose(1, 2).contiguous()
