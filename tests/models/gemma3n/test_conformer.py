from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma3n.conformer import StreamingBlock
from audiokv.streaming.errors import ConfigError
from tests.models.gemma3n.conftest import in_parts, tiny_encoder


def hidden(n_frames: int) -> torch.Tensor:
    return torch.randn((1, n_frames, 24), generator=torch.Generator().manual_seed(n_frames))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
@torch.no_grad()
def test_a_block_gives_in_parts_what_it_gives_at_once(encoder: Any, sizes: list[int]) -> None:
    block = encoder.conformer[1]
    frames = hidden(sum(sizes))
    expected = block(frames, torch.zeros(frames.shape[:2], dtype=torch.bool))
    streaming = StreamingBlock(block)
    state, n_before, outputs = streaming.start(1), 0, []
    for part in in_parts(frames, sizes, 1):
        output, state = streaming.advance(state, part, [n_before])
        n_before += part.shape[1]
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, atol=2e-5, rtol=0)


@torch.no_grad()
def test_a_frame_hears_twelve_before_it_through_attention_and_four_through_the_convolution(
    encoder: Any,
) -> None:
    streaming = StreamingBlock(encoder.conformer[0])
    frames = hidden(60)
    changed = frames.clone()
    changed[:, 20] += 1.0
    outputs = [streaming.advance(streaming.start(1), f, [0])[0] for f in (frames, changed)]
    differs = (outputs[0] - outputs[1]).abs().amax(dim=-1)[0] > 1e-6
    assert torch.nonzero(differs).flatten().tolist() == list(range(20, 20 + 12 + 4 + 1))


def test_a_tower_that_looks_ahead_is_refused() -> None:
    looking = tiny_encoder(conf_attention_context_right=2).conformer[0]
    with pytest.raises(ConfigError, match="2 frames ahead"):
        StreamingBlock(looking)
