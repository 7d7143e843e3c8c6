"""Norms that begin anew at a pause: exact for each segment, whatever the chunks."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma3n.tower import StreamingTower
from tests.models.gemma3n.conftest import in_parts
from tests.models.gemma3n.test_tower import TOLERANCE, batch_encoder, mel


class SplitNorm(torch.nn.Module):
    """A cumulative norm that begins anew at a row, in the batch encoder."""

    def __init__(self, norm: Any, first_row: int) -> None:
        super().__init__()
        self._norm = norm
        self._first_row = first_row

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        parts = [rows[:, : self._first_row], rows[:, self._first_row :]]
        return torch.cat([self._norm(part) for part in parts if part.shape[1]], dim=1)


def n_rows_out(n_rows: int) -> int:
    """Rows that a convolution of three rows and stride two has given out."""
    return max(0, (n_rows - 3) // 2 + 1)


def restarted(encoder: Any, frames: torch.Tensor, at_frame: int) -> torch.Tensor:
    """The batch encoder's slots where both norms begin anew with what is still to come."""
    front = encoder.subsample_conv_projection
    first_row = n_rows_out(at_frame)
    rows = (first_row, n_rows_out(first_row))
    blocks = (front.conv_0, front.conv_1)
    norms = [block.norm for block in blocks]
    try:
        for block, norm, row in zip(blocks, norms, rows, strict=True):
            block.norm = SplitNorm(norm, row)
        return batch_encoder(encoder, frames)
    finally:
        for block, norm in zip(blocks, norms, strict=True):
            block.norm = norm


@given(st.integers(1, 200), st.integers(1, 200), st.lists(st.integers(0, 50), max_size=4))
@settings(max_examples=15, deadline=None)
def test_after_a_pause_it_is_the_batch_encoder_with_norms_begun_anew(
    encoder: Any, n_before: int, n_after: int, sizes: list[int]
) -> None:
    frames = torch.cat((mel(n_before, 1) + 3, mel(n_after, 2)), dim=1)
    while sum(sizes) > n_after:
        sizes = sizes[:-1]
    tower = StreamingTower(encoder)
    with torch.no_grad():
        slots, state = tower.advance(tower.start(), frames[:, :n_before])
        given_out, state = [slots], tower.forget_level(state)
        for part in in_parts(frames[:, n_before:], [*sizes, n_after - sum(sizes)], 1):
            slots, state = tower.advance(state, part)
            given_out.append(slots)
        given_out.append(tower.finish(state))
    expected = restarted(encoder, frames, n_before)
    made = torch.cat(given_out, dim=1)
    assert made.shape == expected.shape
    assert (made - expected).abs().max() < TOLERANCE


def test_the_pause_matters(encoder: Any) -> None:
    frames = torch.cat((mel(160, 1) + 3, mel(160, 2)), dim=1)
    difference = restarted(encoder, frames, 160) - batch_encoder(encoder, frames)
    assert difference[:, :10].abs().max() < TOLERANCE
    assert difference[:, 11:].abs().max() > 100 * TOLERANCE
