from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.whisper.cross_cache import CrossCache, Holding, merged, nearest_owners

N_AUDIO = 40
N_PADDING = 10


def numbered(n_slots: int, held: np.ndarray | None = None) -> CrossCache:
    """A cache whose keys and values tell their own place."""
    keys = [torch.arange(n_slots).expand(2, n_slots)[..., None] + 100 * i for i in range(3)]
    return CrossCache(keys, [-k for k in keys], N_AUDIO, held)


@given(st.sets(st.integers(0, N_AUDIO - 1)), st.integers(0, 9))
def test_attention_is_scattered_to_where_it_was_given(slots: set[int], seed: int) -> None:
    held = np.array(sorted(slots), np.intp)
    attention = torch.rand(3, 2, len(held) + N_PADDING, generator=torch.manual_seed(seed))
    spread = numbered(len(held) + N_PADDING, held).by_time(attention)
    assert spread.shape == (3, 2, N_AUDIO)
    for slot in range(N_AUDIO):
        column = spread[..., slot]
        if slot in slots:
            assert torch.equal(column, attention[..., sorted(slots).index(slot)])
        else:
            assert not column.any()


def test_attention_over_a_whole_cache_is_that_over_its_audio() -> None:
    attention = torch.rand(3, 2, N_AUDIO + N_PADDING)
    spread = numbered(N_AUDIO + N_PADDING).by_time(attention)
    assert torch.equal(spread, attention[..., :N_AUDIO])


@given(st.sets(st.integers(0, N_AUDIO - 1)), st.integers(0, N_AUDIO - 1))
def test_the_later_part_has_the_slots_held_from_there_on(slots: set[int], since: int) -> None:
    held = np.array(sorted(slots), np.intp)
    whole = numbered(len(held) + N_PADDING, held)
    later = whole.since(since)
    kept = [slot for slot in sorted(slots) if slot >= since]
    assert later.n_audio_slots == N_AUDIO - since
    assert later.held is not None
    assert later.held.tolist() == [slot - since for slot in kept]
    n_left_out = len(slots) - len(kept)
    for before, after in zip(whole.keys + whole.values, later.keys + later.values, strict=True):
        assert torch.equal(after, before[:, n_left_out:])


@given(
    st.sets(st.integers(0, N_AUDIO - 1), min_size=1), st.integers(1, 9), st.integers(N_AUDIO, 60)
)
def test_every_slot_belongs_to_the_nearest_held_one_within_reach(
    slots: set[int], most: int, n_window: int
) -> None:
    places = np.array(sorted(slots), np.intp)
    owners = nearest_owners(places, n_window, most)
    assert owners.shape == (n_window,)
    assert owners[places].tolist() == list(range(len(places)))
    assert np.bincount(owners[owners >= 0]).max() <= most
    for slot, owner in enumerate(owners.tolist()):
        nearest = int(np.abs(places - slot).min())
        if owner >= 0:
            assert abs(int(places[owner]) - slot) == nearest
        else:
            assert nearest >= most // 2


def test_a_held_slot_is_the_mean_of_what_it_stands_for() -> None:
    encoded = torch.arange(6.0)[:, None].expand(6, 2)
    owners = np.array([0, 0, 0, 1, 1, -1])
    audio, log_mass = merged(encoded, Holding(np.array([1, 4]), owners))
    assert audio.tolist() == [[1.0, 1.0], [3.5, 3.5]]
    assert log_mass is not None
    assert torch.allclose(log_mass.exp(), torch.tensor([3.0, 2.0]))


def test_slots_that_stand_for_themselves_are_left_alone() -> None:
    encoded = torch.rand(6, 2)
    audio, log_mass = merged(encoded, Holding(np.array([1, 4])))
    assert log_mass is None
    assert torch.equal(audio, encoded[[1, 4]])


def test_the_later_part_keeps_the_mass_of_its_slots() -> None:
    cross = numbered(4 + N_PADDING, np.array([3, 9, 20, 30]))
    cross.log_mass = torch.arange(4.0 + N_PADDING)
    later = cross.since(15).log_mass
    assert later is not None
    assert later.tolist() == list(range(2, 4 + N_PADDING))


def test_the_later_part_of_a_whole_cache() -> None:
    later = numbered(N_AUDIO + N_PADDING).since(15)
    assert later.held is None
    assert later.n_audio_slots == N_AUDIO - 15
    assert later.keys[0].shape[1] == N_AUDIO + N_PADDING - 15
    assert int(later.keys[0][0, 0, 0]) == 15
