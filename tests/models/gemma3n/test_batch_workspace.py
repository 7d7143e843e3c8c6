from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from audiokv.models.cache.readout import NO_SLOT
from audiokv.models.gemma3n.batch_workspace import LayerMap, Rows, Workspace
from tests.models.gemma3n.batching import History, lived, with_shared_silence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.speech_model import SpeechModel

WEIGHT = torch.empty(0)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def prefixes(speech: SpeechModel) -> list[Prefix]:
    return [
        lived(speech, History(15, None, "fifo", 1)),
        lived(speech, History(20, 12, "uniform", 2)),
        lived(speech, History(3, 12, "fifo", 3)),
    ]


def loaded(speech: SpeechModel, prefixes: list[Prefix], n_lanes: int = 4) -> Workspace:
    space = Workspace.empty(LayerMap.of(speech.text_config), (n_lanes, 30, 25), WEIGHT)
    space.load([prefix.cache for prefix in prefixes])
    return space


def test_layers_are_read_from_the_config(speech: SpeechModel) -> None:
    layers = LayerMap.of(speech.text_config)
    assert layers.full == (1, 3)
    assert layers.sliding == (0, 2)
    assert layers.readers == ((1, 0), (3, 1), (5, 1))
    assert (layers.n_key_heads, layers.head_size, layers.window) == (2, 8, 12)


def test_a_lane_is_a_copy_of_a_cache(speech: SpeechModel, prefixes: list[Prefix]) -> None:
    space = loaded(speech, prefixes)
    for lane, prefix in enumerate(prefixes):
        cache, n_held = prefix.cache, prefix.held
        assert space.full.n_held[lane] == space.full.n_kept[lane] == n_held
        assert space.full.positions[lane, :n_held].tolist() == cache.positions.tolist()
        assert (space.full.positions[lane, n_held:] == NO_SLOT).all()
        assert space.next_position[lane] == cache.seen
        for index, producer in zip((1, 3), cache.producers, strict=True):
            store = producer.stores[0]
            assert torch.equal(space.keys[index][lane, :, :n_held], store.keys()[0])
            assert torch.equal(space.values[index][lane, :, :n_held], store.values()[0])
        n_window = int(space.sliding.n_held[lane])
        assert n_window == min(cache.seen, 11)
        expected = np.arange(cache.seen - n_window, cache.seen)
        assert space.sliding.positions[lane, :n_window].tolist() == expected.tolist()
        for index in (0, 2):
            layer: Any = cache.layers[index]
            assert torch.equal(space.keys[index][lane, :, :n_window], layer.keys[0])


def test_a_lane_without_a_stream_has_one_row_so_that_nothing_in_it_is_undefined(
    speech: SpeechModel, prefixes: list[Prefix]
) -> None:
    space = loaded(speech, prefixes)
    assert space.full.positions[3, :2].tolist() == [0, NO_SLOT]
    assert space.next_position[3] == 1


def test_slots_that_share_silence_count_for_what_they_stand_for(speech: SpeechModel) -> None:
    prefix = with_shared_silence(speech)
    space = loaded(speech, [prefix])
    shared = np.exp(space.full.log_counts[0, : prefix.held])
    assert shared.round().tolist() == [1] * 6 + [5] + [1] * 5
    space.load([lived(speech, History(12, None, "fifo", 1)).cache])
    assert not space.full.log_counts.any()


def test_slots_held_as_int8_lie_in_the_order_of_their_positions(speech: SpeechModel) -> None:
    prefix = lived(speech, History(9, None, "fifo", 1))
    exact = loaded(speech, [prefix])
    prefix.cache.quantize([4, 5, 8])
    space = loaded(speech, [prefix])
    assert space.full.positions[0, :11].tolist() == list(range(11))
    difference = (space.keys[1][0] - exact.keys[1][0]).abs().amax(dim=(0, 2))[:11]
    assert torch.nonzero(difference).flatten().tolist() == [4, 5, 8]
    assert difference.max() < 0.1


def test_a_tail_is_forgotten_and_what_was_there_before_is_not(
    speech: SpeechModel, prefixes: list[Prefix]
) -> None:
    space = loaded(speech, prefixes)
    positions, begins = space.full.positions.copy(), int(space.next_position[1])
    for rows in (space.full, space.sliding):
        n_held = int(rows.n_held[1])
        added = rows.add(1, begins, 3)
        assert added.tolist() == [n_held, n_held + 1, n_held + 2]
        assert rows.positions[1, added].tolist() == [begins, begins + 1, begins + 2]
    space.next_position[1] += 3
    newest = space.newest(1, 3)
    assert sorted(newest) == [0, 1, 2, 3]
    assert {part.shape for pair in newest.values() for part in pair} == {(1, 2, 3, 8)}
    space.roll_back(1)
    assert (space.full.positions == positions).all()
    assert space.next_position[1] == begins
    assert space.full.n_held[1] == space.full.n_kept[1]


def test_room_is_that_of_the_fullest_lane(speech: SpeechModel, prefixes: list[Prefix]) -> None:
    space = loaded(speech, prefixes)
    n_full = int(space.full.n_held[0])
    assert space.has_room([0, 2], 30 - n_full)
    assert not space.has_room([0, 2], 30 - n_full + 1)
    assert space.has_room([2], 25 - int(space.sliding.n_held[2]))
    assert not space.has_room([2], 25 - int(space.sliding.n_held[2]) + 1)


def test_lanes_move_with_their_tails(speech: SpeechModel, prefixes: list[Prefix]) -> None:
    space = loaded(speech, prefixes)
    begins = int(space.next_position[1])
    for rows, index in ((space.full, 1), (space.sliding, 0)):
        row = int(rows.add(1, begins, 1)[0])
        space.keys[index][1, :, row] = 7.0
    space.next_position[1] += 1
    moved = Workspace.empty(space.layers, (2, 40, 40), WEIGHT)
    moved.take_lanes([(space, 1)])
    for rows, own in ((space.full, moved.full), (space.sliding, moved.sliding)):
        n_held = int(rows.n_held[1])
        assert own.positions[0, :n_held].tolist() == rows.positions[1, :n_held].tolist()
        assert own.n_kept[0] == n_held - 1
    assert (moved.keys[1][0, :, int(moved.full.n_held[0]) - 1] == 7.0).all()
    assert moved.next_position[0] == begins + 1
    moved.roll_back(0)
    assert moved.next_position[0] == begins


def test_the_last_row_never_has_a_position() -> None:
    rows = Rows.empty(1, 4)
    rows.fill(0, np.arange(2), None)
    rows.add(0, 2, 2)
    assert rows.positions.tolist() == [[0, 1, 2, 3, NO_SLOT]]
    assert rows.capacity == 4
