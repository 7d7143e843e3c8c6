from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma3nAudioConfig, Gemma3nAudioEncoder

from audiokv.models.gemma3n.tower import StreamingTower, TowerState, stacked
from tests.models.gemma3n.conftest import in_parts, tiny_encoder

TOLERANCE = 1e-4


def mel(n_frames: int, seed: int = 0, batch: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((batch, n_frames, 128), generator=generator) * 2 - 4


@torch.no_grad()
def batch_encoder(encoder: Any, frames: torch.Tensor) -> torch.Tensor:
    """What transformers makes of the whole, with nothing masked."""
    mask = torch.zeros(frames.shape[:2], dtype=torch.bool)
    slots: torch.Tensor = encoder(frames, mask).last_hidden_state
    return slots


@torch.no_grad()
def in_chunks(
    tower: StreamingTower, frames: torch.Tensor, sizes: list[int]
) -> tuple[list[torch.Tensor], TowerState]:
    state, given_out = tower.start(frames.shape[0]), []
    for part in in_parts(frames, [*sizes, frames.shape[1] - sum(sizes)], 1):
        slots, state = tower.advance(state, part)
        given_out.append(slots)
    return given_out, state


@given(st.integers(1, 330), st.lists(st.integers(0, 60), max_size=8), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_any_chunking_gives_the_batch_encoders_slots(
    encoder: Any, n_frames: int, sizes: list[int], seed: int
) -> None:
    frames = mel(n_frames, seed)
    while sum(sizes) > n_frames:
        sizes = sizes[:-1]
    tower = StreamingTower(encoder)
    given_out, state = in_chunks(tower, frames, sizes)
    with torch.no_grad():
        slots = torch.cat([*given_out, tower.finish(state)], dim=1)
    expected = batch_encoder(encoder, frames)
    assert slots.shape == expected.shape
    assert (slots - expected).abs().max() < TOLERANCE
    assert expected.abs().mean() > 0.1  # something was computed


def test_one_frame_at_a_time_and_a_long_stream(encoder: Any) -> None:
    frames = mel(1200)
    tower = StreamingTower(encoder)
    given_out, state = in_chunks(tower, frames, [1] * 1199)
    with torch.no_grad():
        slots = torch.cat([*given_out, tower.finish(state)], dim=1)
    expected = batch_encoder(encoder, frames)
    assert slots.shape == expected.shape
    assert (slots - expected).abs().max() < TOLERANCE


def test_a_slot_comes_with_its_last_mel_frame_and_stays(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    frames = mel(100)
    for n_slot in range(5):
        first, _ = in_chunks(tower, frames[:, : 16 * n_slot + 6], [])
        then, _ = in_chunks(tower, frames[:, : 16 * n_slot + 7], [])
        assert first[0].shape[1] == n_slot
        assert then[0].shape[1] == n_slot + 1
        assert (then[0] - batch_encoder(encoder, frames)[:, : n_slot + 1]).abs().max() < TOLERANCE


def test_finishing_leaves_the_stream_going(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    frames = mel(90)
    with torch.no_grad():
        state, given_out = tower.start(), []
        for part in in_parts(frames, 23, 1):
            slots, state = tower.advance(state, part)
            given_out.append(slots)
            tower.finish(state)
        slots = torch.cat([*given_out, tower.finish(state)], dim=1)
    assert (slots - batch_encoder(encoder, frames)).abs().max() < TOLERANCE


def test_a_batch_of_streams_is_each_alone(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    frames = mel(70, batch=3)
    together, _ = in_chunks(tower, frames, [20, 7])
    for row in range(3):
        alone, _ = in_chunks(tower, frames[row : row + 1], [20, 7])
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[row : row + 1], b, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_streams_that_wait_for_as_many_rows_can_be_joined(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    states = [tower.advance(tower.start(), mel(n, n))[1] for n in (24, 40)]
    more = mel(32, batch=2)
    joined, after = tower.advance(stacked(states), more)
    assert after.n_frames == (13, 17)
    for row, state in enumerate(states):
        alone, _ = tower.advance(state, more[row : row + 1])
        torch.testing.assert_close(joined[row : row + 1], alone, atol=TOLERANCE, rtol=0)
    with pytest.raises(ValueError, match="equally many rows"):
        stacked([states[0], tower.start()])


@given(
    st.lists(st.tuples(st.integers(0, 260), st.integers(0, 40)), min_size=1, max_size=6),
    st.integers(0, 3),
)
@settings(max_examples=20, deadline=None)
@torch.no_grad()
def test_streams_anywhere_in_their_audio_share_passes_and_hear_what_each_hears_alone(
    encoder: Any, streams: list[tuple[int, int]], seed: int
) -> None:
    tower = StreamingTower(encoder)
    states = [tower.advance(tower.start(), mel(n, seed + n))[1] for n, _ in streams]
    mels = [mel(n_new, 9 + n_new) for _, n_new in streams]
    together = tower.advance_each(states, mels)
    endings = tower.finish_each([state for _, state in together])
    for (slots, after), ending, state, part in zip(together, endings, states, mels, strict=True):
        alone, expected = tower.advance(state, part)
        torch.testing.assert_close(slots, alone, atol=TOLERANCE, rtol=0)
        assert after.n_frames == expected.n_frames
        last = tower.finish(expected)
        torch.testing.assert_close(ending, last, atol=TOLERANCE, rtol=0)
        # A stream that goes on alone goes on as if it had never been in a batch.
        further = tower.advance(after, mel(33))[0], tower.advance(expected, mel(33))[0]
        torch.testing.assert_close(*further, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_streams_at_different_places_are_encoded_in_one_pass(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    states = [tower.advance(tower.start(), mel(n))[1] for n in (30, 90, 150)]
    passes: list[int] = []
    block: Any = tower._blocks[0]
    advance = block.advance

    def counted(state: Any, frames: torch.Tensor, n_before: tuple[int, ...]) -> Any:
        passes.append(len(n_before))
        return advance(state, frames, n_before)

    block.advance = counted
    after = [state for _, state in tower.advance_each(states, [mel(30)] * 3)]
    tower.finish_each(after)
    assert passes == [3, 3]


@torch.no_grad()
def test_a_stream_of_a_batch_keeps_no_memory_of_the_others(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    (_, first), _ = tower.advance_each([tower.start()] * 2, [mel(60)] * 2)
    for tensor in first._tensors():
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


@torch.no_grad()
def test_forgetting_the_level_brings_a_later_part_back_to_its_own_norm(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    loud, speech = mel(400, 1) * 3 + 8, mel(200, 2)
    _, state = tower.advance(tower.start(), loud)
    alone = batch_encoder(encoder, speech)[:, -4:]
    kept = tower.advance(state, speech)[0][:, -5:-1]
    fresh = tower.advance(tower.forget_level(state), speech)[0][:, -5:-1]
    n = min(kept.shape[1], alone.shape[1])
    expected = batch_encoder(encoder, speech)[:, -n - 1 : -1]
    assert (fresh - expected).abs().mean() < 0.6 * (kept - expected).abs().mean()


def test_the_state_does_not_grow(encoder: Any) -> None:
    tower = StreamingTower(encoder)
    sizes = {in_chunks(tower, mel(n), [])[1].nbytes for n in (160, 320, 1600)}
    assert len(sizes) == 1


def test_the_state_of_the_real_sizes_takes_some_2_mb() -> None:
    with torch.device("meta"):
        tower = StreamingTower(Gemma3nAudioEncoder(Gemma3nAudioConfig()))
        assert 1.5e6 < tower.start().nbytes < 3e6


@pytest.mark.parametrize(
    "change",
    [
        {"conf_attention_context_left": 1},
        {"conf_attention_context_left": 5, "conf_attention_chunk_size": 3},
        {"conf_conv_kernel_size": 3},
        {"conf_reduction_factor": 1},
        {"conf_attention_logit_cap": 2.0},
        {"sscp_conv_stride_size": ((1, 2), (2, 2))},
        {"input_feat_size": 128, "sscp_conv_kernel_size": ((5, 3), (3, 3))},
        {"gradient_clipping": 2.0},
    ],
)
def test_other_sizes_are_read_from_the_config(change: dict[str, Any]) -> None:
    encoder = tiny_encoder(**change)
    tower = StreamingTower(encoder)
    frames = mel(123)
    given_out, state = in_chunks(tower, frames, [10, 1, 33])
    with torch.no_grad():
        slots = torch.cat([*given_out, tower.finish(state)], dim=1)
    expected = batch_encoder(encoder, frames)
    assert slots.shape == expected.shape
    assert (slots - expected).abs().max() < TOLERANCE
