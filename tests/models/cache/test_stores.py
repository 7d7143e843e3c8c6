from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.cache.rotary import KeyRotation
from audiokv.models.cache.stores import SlotStore

ROTATION = KeyRotation(torch.tensor([1.0, 0.3]))


def filled(n_slots: int, first: int = 0) -> SlotStore:
    store = SlotStore(torch.empty(1, 2, 0, 4), torch.empty(1, 2, 0, 3))
    store.append(torch.randn(1, 2, n_slots, 4), torch.randn(1, 2, n_slots, 3), first)
    return store


def in_slot_order(store: SlotStore) -> tuple[torch.Tensor, torch.Tensor]:
    back = np.argsort(store.order())
    return store.keys()[:, :, back], store.values()[:, :, back]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_history_of_changes_keeps_each_slot_its_vectors(seed: int) -> None:
    chance = np.random.default_rng(seed)
    store = filled(0)
    keys: dict[int, torch.Tensor] = {}
    next_position = 0
    for _ in range(12):
        change = chance.choice(["append", "keep", "truncate", "quantize", "promote"])
        some = np.flatnonzero(chance.random(len(store)) < 0.5)
        if change == "append":
            new = torch.randn(1, 2, 3, 4)
            store.append(new, torch.randn(1, 2, 3, 3), next_position)
            keys |= {next_position + i: new[:, :, i] for i in range(3)}
            next_position += 3
        elif change == "keep":
            keys = {int(p): keys[int(p)] for p in store.positions[some]}
            store.keep(some)
        elif change == "truncate":
            next_position = int(chance.integers(0, next_position + 1))
            keys = {p: key for p, key in keys.items() if p < next_position}
            store.truncate(next_position)
        elif change == "quantize":
            store.quantize(some)
            assert store.is_int8[some].all()
        else:
            store.promote(some)
            assert not store.is_int8[some].any()
        assert store.positions.tolist() == sorted(keys)
        assert sorted(store.order()) == list(range(len(store)))
        if keys:
            expected = torch.stack([keys[p] for p in sorted(keys)], dim=2)
            # Every trip through int8 costs up to half a level of the largest component.
            assert torch.allclose(in_slot_order(store)[0], expected, atol=0.15)


def test_untouched_slots_keep_their_bits() -> None:
    store = filled(10)
    keys, values = (part.clone() for part in in_slot_order(store))
    store.quantize([1, 4])
    store.keep([0, 1, 2, 4, 7, 9])
    kept_keys, kept_values = in_slot_order(store)
    precise = [0, 2, 4, 5]
    assert torch.equal(kept_keys[:, :, precise], keys[:, :, [0, 2, 7, 9]])
    assert torch.equal(kept_values[:, :, precise], values[:, :, [0, 2, 7, 9]])


def test_bytes_are_those_of_the_tensors() -> None:
    store = filled(10)
    index = 10 * (8 + 4 + 1)
    assert store.nbytes == 10 * 2 * (4 + 3) * 4 + index
    store.quantize(range(10))
    assert store.nbytes == 10 * 2 * ((4 + 4) + (3 + 4)) + index
    store.trim()
    assert store.allocated_nbytes == store.nbytes


def test_merged_slots_hold_the_mean_at_the_given_position() -> None:
    store = filled(6, first=10)
    keys, values = (part.clone() for part in in_slot_order(store))
    store.merge([[1, 2, 3]], [10 + 1], ROTATION)
    assert store.positions.tolist() == [10, 11, 14, 15]
    assert store.multiplicity.tolist() == [1, 3, 1, 1]
    moved = ROTATION.rotate(keys[:, :, 1:4], np.array([0, -1, -2]))
    assert torch.allclose(store.keys()[:, :, 1], moved.mean(dim=2), atol=1e-6)
    assert torch.allclose(store.values()[:, :, 1], values[:, :, 1:4].mean(dim=2), atol=1e-6)


def test_merging_again_weighs_by_what_each_slot_stands_for() -> None:
    store = filled(4)
    _, values = in_slot_order(store)
    mean = values[:, :, :4].mean(dim=2)
    store.merge([[0, 1, 2]], [0], None)
    store.merge([[0, 1]], [0], None)
    assert store.multiplicity.tolist() == [4]
    assert torch.allclose(store.values()[:, :, 0], mean, atol=1e-6)


def test_a_run_that_begins_as_int8_stays_int8() -> None:
    store = filled(5)
    store.quantize([1, 2, 4])
    store.merge([[1, 2, 3]], [1], ROTATION)
    assert store.is_int8.tolist() == [False, True, True]


@pytest.mark.parametrize("int8", [[], [0, 3]])
def test_shift_turns_all_keys_alike(int8: list[int]) -> None:
    store = filled(5, first=100)
    store.quantize(int8)
    keys, values = (part.clone() for part in in_slot_order(store))
    store.shift(-90, ROTATION)
    moved, same = in_slot_order(store)
    assert store.positions.tolist() == [10, 11, 12, 13, 14]
    assert torch.allclose(moved, ROTATION.rotate(keys, np.full(5, -90)), atol=0.03)
    assert torch.equal(same, values)
    dots = (keys[:, :, :1] * keys).sum(-1), (moved[:, :, :1] * moved).sum(-1)
    assert torch.allclose(*dots, atol=1e-5 if not int8 else 0.1)


def test_keys_without_positions_only_change_their_numbers() -> None:
    store = filled(3, first=7)
    keys = store.keys().clone()
    store.shift(-7, None)
    assert store.positions.tolist() == [0, 1, 2]
    assert torch.equal(store.keys(), keys)


def test_batch_rows_follow_a_reordering() -> None:
    store = SlotStore(torch.empty(2, 1, 0, 4), torch.empty(2, 1, 0, 4))
    store.append(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 3, 4), 0)
    store.quantize([1])
    before = store.keys().clone()
    store.change_batch(lambda rows: rows.flip(0))
    assert torch.equal(store.keys(), before.flip(0))


def test_empty_changes_change_nothing() -> None:
    store = filled(3)
    store.quantize([])
    store.promote([])
    store.merge([], [], ROTATION)
    assert len(store) == 3
    store.keep([])
    assert len(store) == 0
    assert store.keys().shape == (1, 2, 0, 4)
    assert math.isclose(store.nbytes, 0)
