from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioCumulativeGroupNorm

from audiokv.models.gemma3n.subsampling import NormSums, StreamingConv
from tests.models.gemma3n.conftest import in_parts


def rows(n_rows: int, seed: int, n_channels: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((1, n_channels, n_rows, 128), generator=generator) * 3 + 5


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
@torch.no_grad()
def test_a_convolution_gives_in_parts_what_it_gives_at_once(
    encoder: Any, sizes: list[int], seed: int
) -> None:
    block = encoder.subsample_conv_projection.conv_0
    conv = StreamingConv(block, 128)
    whole = rows(sum(sizes), seed)
    state, outputs = conv.start(1), []
    for part in in_parts(whole, sizes, 2):
        output, state = conv.push(state, part)
        outputs.append(output)
    outputs.append(conv.flush(state, whole[:, :, :0]))
    got = torch.cat(outputs, dim=2)
    if not sum(sizes):
        assert got.shape[2] == 0
        return
    expected = block(whole)
    assert got.shape == expected.shape
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_norm_is_that_of_transformers_and_eps_counts() -> None:
    values = rows(20, 1, 4) * 0.01
    for epsilon in (1e-3, 0.5):
        reference = Gemma3nAudioCumulativeGroupNorm(4, (128,), epsilon)
        reference.weight.copy_(torch.tensor([1.0, 2.0, -1.0, 0.5]))
        expected = reference(values.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        sums, parts = NormSums.start(1, values.device), []
        for part in in_parts(values, 7, 2):
            normalized, sums = sums.normalize(part, reference.weight, epsilon)
            parts.append(normalized)
        torch.testing.assert_close(torch.cat(parts, dim=2), expected, atol=1e-5, rtol=1e-4)


def test_hours_do_not_wear_the_sums_out() -> None:
    # Ten hours of conv rows; in float32 a sum of this size would lose the next row's last digits.
    n_before = 10 * 3600 * 50 * 4 * 128
    past = NormSums(
        torch.tensor([n_before], dtype=torch.float64),
        torch.tensor([5.0 * n_before], dtype=torch.float64),
        torch.tensor([9.0 * n_before], dtype=torch.float64),
    )
    values = rows(1, 2, 4)
    normalized, after = past.normalize(values, torch.ones(4), 1e-3)
    assert after.count == n_before + 4 * 128
    total = values.double().sum().item()
    assert abs((after.total - past.total).item() - total) < 1e-3
    torch.testing.assert_close(normalized, (values - 5) / 3, atol=1e-3, rtol=0)


def test_what_is_carried_on_is_less_than_a_kernel(encoder: Any) -> None:
    conv = StreamingConv(encoder.subsample_conv_projection.conv_0, 128)
    state = conv.start(1)
    with torch.no_grad():
        for n_rows in (1, 4, 100, 3):
            _, state = conv.push(state, rows(n_rows, 0))
            assert state.rows.shape[2] < 3
            assert state.rows.untyped_storage().nbytes() == state.rows.nbytes
