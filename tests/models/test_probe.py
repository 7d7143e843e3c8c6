from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.probe import (
    AttentionProbe,
    ReaderAggregation,
    attended_values,
    attention_received,
    attention_weights,
    of_last_queries,
)


def weights_by_hand(
    query: torch.Tensor,
    keys: torch.Tensor,
    mask: torch.Tensor | None,
    softcap: float | None,
) -> torch.Tensor:
    """Weights of shape (batch, query_heads, queries, rows), with the keys repeated."""
    repeated = keys.repeat_interleave(query.shape[1] // keys.shape[1], dim=1)
    logits = query @ repeated.transpose(2, 3) * 0.5
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    if mask is not None and mask.dtype == torch.bool:
        logits = torch.where(mask, logits, -torch.inf)
    elif mask is not None:
        logits = logits + mask
    return logits.softmax(dim=-1)


@settings(deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(4, 9),
    st.sampled_from(["none", "bool", "additive"]),
    st.sampled_from([None, 2.0]),
)
def test_grouped_heads_are_summed_and_queries_averaged(  # noqa: PLR0913, PLR0917  drawn
    batch: int,
    key_heads: int,
    group: int,
    queries: int,
    rows: int,
    masking: str,
    softcap: float | None,
) -> None:
    query = torch.randn(batch, key_heads * group, queries, 8)
    keys = torch.randn(batch, key_heads, rows, 8)
    mask = None
    if masking == "bool":
        mask = torch.ones(queries, rows, dtype=torch.bool).tril(rows - queries)[None, None]
    if masking == "additive":
        mask = torch.randn(1, 1, 1, rows)
    stacked = attention_weights(query, keys, mask, scaling=0.5, softcap=softcap)
    weights = weights_by_hand(query, keys, mask, softcap)
    grouped = weights.reshape(batch, key_heads, group * queries, rows)
    assert torch.allclose(stacked, grouped, atol=1e-5)
    received = attention_received(stacked)
    assert torch.allclose(received, grouped.mean(dim=(0, 2)), atol=1e-5)
    assert torch.allclose(received.sum(dim=-1), torch.ones(key_heads))
    values = torch.randn(batch, key_heads, rows, 3)
    output = attended_values(stacked, values, queries)
    expected = (weights @ values.repeat_interleave(group, dim=1)).transpose(1, 2)
    assert torch.allclose(output, expected, atol=1e-5)


@pytest.mark.parametrize("n_last", [1, 2, 3, 5])
def test_weights_of_the_last_queries_are_those_of_asking_only_them(n_last: int) -> None:
    query, keys = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 6, 8)
    weights = of_last_queries(attention_weights(query, keys, None, scaling=1.0), 3, n_last)
    asked = attention_weights(query[:, :, -n_last:], keys, None, scaling=1.0)
    assert torch.allclose(weights, asked, atol=1e-6)


def test_a_query_that_sees_nothing_gives_nothing() -> None:
    mask = torch.tensor([[True, False], [False, False]])[None, None]
    weights = attention_weights(torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4), mask, scaling=1)
    assert weights[0, 0].tolist() == [[1, 0], [0, 0]]
    assert attention_received(weights).tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize("readers", list(ReaderAggregation))
def test_layers_that_share_keys_count_together(readers: ReaderAggregation) -> None:
    probe = AttentionProbe(readers=readers)
    calls = [torch.randn(1, 2, 3, 5).softmax(dim=-1) for _ in range(3)]
    for weights in calls:
        probe.observe(0, weights)
    probe.observe(1, calls[0])
    stacked = torch.stack([attention_received(weights) for weights in calls])
    taken = probe.take()
    expected = stacked.mean(dim=0) if readers == "mean" else stacked.amax(dim=0)
    assert torch.allclose(taken[0], expected)
    assert torch.allclose(taken[1], stacked[0])
    assert probe.take() == {}


def test_half_precision_is_summed_in_float32() -> None:
    query, keys = torch.randn(1, 1, 1, 4).bfloat16(), torch.randn(1, 1, 900, 4).bfloat16()
    received = attention_received(attention_weights(query, keys, None, scaling=1.0))
    assert received.dtype == torch.float32
    assert abs(received.sum().item() - 1) < 1e-5


def test_at_least_one_query_is_asked_and_the_aggregation_is_known() -> None:
    with pytest.raises(ValueError, match="n_queries is 0"):
        AttentionProbe(n_queries=0)
    with pytest.raises(ValueError, match="median"):
        AttentionProbe(readers="median")


def test_what_is_measured_holds_no_gradient() -> None:
    probe = AttentionProbe()
    probe.observe(0, torch.rand(1, 2, 3, 4, requires_grad=True))
    assert not probe.take()[0].requires_grad
