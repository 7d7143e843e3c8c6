from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma4.tower_in_stream import N_MELS, Gemma4Tower
from tests.models.gemma4.conftest import tiny_tower

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

N_FRAMES = 120  # over twice what a frame looks back through three layers


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def log_mel(n_frames: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((1, n_frames, N_MELS), generator=generator)


def by_class(tower: Any, mel: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(mel.shape[:2], dtype=torch.bool)
    encoded: torch.Tensor = tower(mel, mask).last_hidden_state
    return encoded


def in_chunks(streaming: Gemma4Tower, mel: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    state, parts = streaming.start(mel.shape[0]), []
    for chunk in torch.split(mel, list(sizes), dim=1):
        slots, state = streaming.advance(state, chunk)
        parts.append(slots)
    return torch.cat([*parts, streaming.finish(state)], dim=1)


def sizes_from(cuts: list[int], n_frames: int) -> list[int]:
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < n_frames}), n_frames]
    return [end - start for start, end in pairwise(edges)]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, N_FRAMES), st.lists(st.integers(1, N_FRAMES), max_size=12))
def test_it_is_the_batch_encoder_for_any_chunking(
    tower: Any, n_frames: int, cuts: list[int]
) -> None:
    mel = log_mel(n_frames)
    found = in_chunks(Gemma4Tower(tower), mel, sizes_from(cuts, n_frames))
    torch.testing.assert_close(found, by_class(tower, mel), atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 37])
def test_frames_may_come_in_pieces_of_any_size(tower: Any, size: int) -> None:
    mel = log_mel(N_FRAMES, 1)
    sizes = [len(part) for part in torch.split(torch.arange(N_FRAMES), size)]
    found = in_chunks(Gemma4Tower(tower), mel, sizes)
    torch.testing.assert_close(found, by_class(tower, mel), atol=1e-4, rtol=0)


def test_a_slot_is_final_with_the_fourth_mel_frame_behind_its_first(tower: Any) -> None:
    streaming = Gemma4Tower(tower)
    for slot in (0, 1, 5):
        mel = log_mel(60, 2)
        before, state = streaming.advance(streaming.start(), mel[:, : 4 * slot + 3])
        assert before.shape[1] == slot
        after, _ = streaming.advance(state, mel[:, 4 * slot + 3 : 4 * slot + 4])
        assert after.shape[1] == 1
        other = mel.clone()
        other[:, 4 * slot + 4 :] += 1.0
        torch.testing.assert_close(by_class(tower, other)[:, slot], after[:, 0], atol=1e-4, rtol=0)


def test_a_batch_of_streams_is_each_of_them(tower: Any) -> None:
    streaming = Gemma4Tower(tower)
    mels = [log_mel(70, seed) for seed in (3, 4)]
    both = in_chunks(streaming, torch.cat(mels), [33, 37])
    for row, mel in zip(both, mels, strict=True):
        torch.testing.assert_close(row[None], by_class(tower, mel), atol=1e-4, rtol=0)


def test_the_end_can_be_looked_at_and_the_stream_goes_on(tower: Any) -> None:
    streaming, mel = Gemma4Tower(tower), log_mel(80, 5)
    _, state = streaming.advance(streaming.start(), mel[:, :41])
    first = streaming.finish(state)
    torch.testing.assert_close(first, by_class(tower, mel[:, :41])[:, 10:], atol=1e-4, rtol=0)
    rest, after = streaming.advance(state, mel[:, 41:])
    whole = torch.cat((rest, streaming.finish(after)), dim=1)
    torch.testing.assert_close(whole, by_class(tower, mel)[:, 10:], atol=1e-4, rtol=0)
    assert streaming.forget_level(state) is state


def test_the_state_of_the_published_size_is_small() -> None:
    from transformers import Gemma4AudioConfig, Gemma4AudioModel  # noqa: PLC0415  only here

    config = Gemma4AudioConfig(num_hidden_layers=1)
    streaming = Gemma4Tower(Gemma4AudioModel(config))
    _, state = streaming.advance(streaming.start(), log_mel(80))
    _, grown = streaming.advance(state, log_mel(80))
    assert grown.nbytes == state.nbytes < 250_000


def test_clipping_of_the_linears_is_part_of_it() -> None:
    free = tiny_tower(use_clipped_linears=False)
    mel = log_mel(40, 6)
    found = in_chunks(Gemma4Tower(free), mel, [40])
    torch.testing.assert_close(found, by_class(free, mel), atol=1e-4, rtol=0)
    clipped = in_chunks(Gemma4Tower(tiny_tower()), mel, [40])
    assert float((clipped - found).abs().max()) > 0.1
