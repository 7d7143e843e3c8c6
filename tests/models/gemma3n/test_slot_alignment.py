from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.gemma3n.slot_alignment import RecordingProbe, token_spans
from audiokv.models.probe import AttentionProbe


def weights(n_queries: int, seed: int, n_rows: int = 5) -> torch.Tensor:
    """Of two key heads with two query heads each."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((1, 2, 2 * n_queries, n_rows), generator=generator)


def test_the_policy_sees_what_an_ordinary_probe_of_the_last_queries_shows() -> None:
    recording, plain = RecordingProbe(4, [1, 3]), AttentionProbe(4)
    seen = weights(9, 0)
    recording.observe(0, seen)
    plain.observe(0, seen.view(1, 2, 2, 9, 5)[:, :, :, -4:].reshape(1, 2, 8, 5))
    torch.testing.assert_close(recording.take()[0], plain.take()[0])


def test_weights_are_kept_by_layer_and_head_only_while_recording() -> None:
    probe = RecordingProbe(4, [1, 3])
    probe.observe(0, weights(2, 7))
    probe.record(is_on=True)
    first, second = weights(6, 1), weights(6, 2)
    probe.observe(0, first)
    probe.observe(1, second)
    got = probe.take_step([(3, 2), (1, 1)], 4)
    assert got.shape == (2, 4, 5)
    np.testing.assert_allclose(got[0], second[0, 1, :6][-4:])  # head 2 is the second's first
    np.testing.assert_allclose(got[1], first[0, 0, 6:][-4:])
    probe.observe(0, first)
    probe.observe(1, second)
    assert probe.take_step([], 6).shape == (8, 6, 5)


def looking_at(spans: list[tuple[int, int]], n_columns: int) -> np.ndarray:
    """Attention of two heads, one row a token and one for the end of the text."""
    attention = np.full((2, len(spans) + 1, n_columns), 0.01, np.float32)
    for token, (first, last) in enumerate(spans):
        attention[:, token, first : last + 1] = 0.3
    attention[:, -1, -1] = 0.3
    return attention


def test_tokens_lie_where_their_heads_look_and_silence_belongs_to_none() -> None:
    spans = [(1, 2), (5, 5), (6, 6), (8, 9)]
    assert token_spans(looking_at(spans, 13)).tolist() == [list(span) for span in spans]


def test_a_slot_that_everything_looks_at_counts_for_nothing() -> None:
    attention = looking_at([(1, 1), (3, 3), (5, 5)], 7)
    attention[:, :, 0] = 0.9
    assert token_spans(attention).tolist() == [[1, 1], [3, 3], [5, 5]]


def test_a_head_that_looks_elsewhere_is_outvoted() -> None:
    attention = np.concatenate([looking_at([(1, 2), (4, 4)], 7)] * 2)
    attention[0] = attention[0, ::-1]
    assert token_spans(attention).tolist() == [[1, 2], [4, 4]]


@given(
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_spans_never_fall_and_stay_inside(n_tokens: int, n_columns: int, seed: int) -> None:
    attention = np.random.default_rng(seed).random((2, n_tokens + 1, n_columns), np.float32)
    spans = token_spans(attention)
    assert spans.shape == (n_tokens, 2)
    assert (np.diff(spans, axis=0) >= 0).all()
    assert (spans[:, 0] <= spans[:, 1]).all()
    assert spans.min() >= 0
    assert spans.max() < n_columns


def test_no_tokens_have_no_spans() -> None:
    assert token_spans(np.ones((2, 1, 3), np.float32)).shape == (0, 2)
