from __future__ import annotations

from typing import Any

import pytest
import torch

from audiokv.models.gemma4.layers_in_stream import ConformerLayer, SubsampledRows
from audiokv.streaming.errors import ConfigError
from tests.models.gemma4.conftest import tiny_tower

N_FREQUENCIES = 128


def rows(n_rows: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((1, 1, n_rows, N_FREQUENCIES), generator=generator)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("size", [1, 2, 5])
@torch.no_grad()
def test_a_convolution_in_pieces_is_the_whole_one(tower: Any, n_rows: int, size: int) -> None:
    layer = tower.subsample_conv_projection.layer0
    conv = SubsampledRows(layer, N_FREQUENCIES)
    given, expected = rows(n_rows), layer(rows(n_rows))[0]
    held, parts = conv.start(1), []
    for piece in torch.split(given, size, dim=2):
        out, held = conv.push(held, piece)
        parts.append(out)
    parts.append(conv.flush(held, given[:, :, :0]))
    found = torch.cat(parts, dim=2)
    assert found.shape[-1] == conv.n_out
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_tower_that_looks_ahead_is_refused() -> None:
    looking = tiny_tower(attention_context_right=2)
    with pytest.raises(ConfigError, match="2 frames ahead") as caught:
        ConformerLayer(looking.layers[0], looking.rel_pos_enc(torch.zeros(1)))
    assert caught.value.code == "tower_looks_ahead"


@torch.no_grad()
def test_a_frame_looks_back_eleven_frames_and_no_further(tower: Any) -> None:
    layer = ConformerLayer(tower.layers[0], tower.rel_pos_enc(torch.zeros(1)))
    assert layer.n_past_frames == 11
    # Only the keys and values of the attention reach that far; the convolution reaches four.
    state = layer.start(1)
    frames = torch.randn((1, 20, 24), generator=torch.Generator().manual_seed(1))
    _, after = layer.advance(state, frames, 0)
    assert after.keys.shape == after.values.shape == (1, 11, 2, 12)
    assert after.conv_rows.shape == (1, 4, 24)
