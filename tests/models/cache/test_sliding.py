from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.cache_utils import DynamicSlidingWindowLayer

from audiokv.models.cache.rotary import KeyRotation
from audiokv.models.cache.sliding import SlidingLayer

ROTATION = KeyRotation(torch.tensor([1.0, 0.1]))


def layers(rotation: KeyRotation | None = ROTATION) -> tuple[Any, SlidingLayer]:
    theirs: Any = DynamicSlidingWindowLayer(sliding_window=5)
    return theirs, SlidingLayer(theirs, lambda: rotation)


def update(layer: Any, n_slots: int) -> None:
    layer.update(torch.randn(1, 2, n_slots, 4), torch.randn(1, 2, n_slots, 4))


def test_an_unused_layer_can_be_asked_everything() -> None:
    theirs, ours = layers()
    ours.open_tail()
    ours.close_tail(0)
    ours.shift(-3)
    assert ours.nbytes == 0
    assert theirs.get_seq_length() == 0


@pytest.mark.parametrize("n_before", [2, 4, 5, 11])
@pytest.mark.parametrize("tail", [[1], [3, 2], [9, 1, 1]])
def test_a_dropped_tail_leaves_the_same_bits(n_before: int, tail: list[int]) -> None:
    theirs, ours = layers()
    update(theirs, n_before)
    keys, values = theirs.keys.clone(), theirs.values.clone()
    ours.open_tail()
    for n_slots in tail:
        update(theirs, n_slots)
    ours.close_tail(sum(tail))
    assert torch.equal(theirs.keys, keys)
    assert torch.equal(theirs.values, values)
    assert theirs.get_seq_length() == n_before
    update(theirs, 20)
    assert theirs.keys.shape[2] == ours.full_slots


def test_a_kept_tail_leaves_the_window() -> None:
    theirs, ours = layers()
    update(theirs, 3)
    ours.open_tail()
    update(theirs, 6)
    ours.close_tail(0)
    assert theirs.keys.shape[2] == ours.full_slots == 4
    assert theirs.get_seq_length() == 9
    assert ours.nbytes == 2 * 4 * 2 * 4 * 4


@pytest.mark.parametrize("rotation", [ROTATION, None])
def test_shift_turns_keys_and_lowers_the_counter(rotation: KeyRotation | None) -> None:
    theirs, ours = layers(rotation)
    update(theirs, 9)
    keys = theirs.keys.clone()
    ours.shift(-4)
    assert theirs.get_seq_length() == 5
    assert torch.equal(theirs.keys, keys) == (rotation is None)
    assert torch.allclose(theirs.keys.norm(dim=-1), keys.norm(dim=-1))
