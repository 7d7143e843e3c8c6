from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.whisper.cross_cache import CrossCache

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


def test_the_later_part_of_a_whole_cache() -> None:
    later = numbered(N_AUDIO + N_PADDING).since(15)
    assert later.held is None
    assert later.n_audio_slots == N_AUDIO - 15
    assert later.keys[0].shape[1] == N_AUDIO + N_PADDING - 15
    assert int(later.keys[0][0, 0, 0]) == 15
