from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.cache.buffers import SlotBuffer

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 90)),
        st.tuples(st.just("keep"), st.integers(0, 2**32 - 1)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("trim"), st.just(0)),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(CHANGES)
def test_holds_what_a_plain_tensor_would(changes: list[tuple[str, int]]) -> None:
    buffer = SlotBuffer(torch.empty(1, 2, 0, 3))
    plain = torch.empty(1, 2, 0, 3)
    for change, number in changes:
        if change == "append":
            new = torch.randn(1, 2, number, 3)
            buffer.append(new)
            plain = torch.cat((plain, new), dim=2)
        elif change == "keep":
            chance = np.random.default_rng(number)
            rows = np.flatnonzero(chance.random(plain.shape[2]) < 0.5)
            buffer.keep(rows)
            plain = plain[:, :, rows]
        elif change == "truncate":
            buffer.truncate(number)
            plain = plain[:, :, :number]
        else:
            buffer.trim()
            assert buffer.allocated_nbytes == buffer.nbytes
        assert torch.equal(buffer.view, plain)
        assert len(buffer) == plain.shape[2]
        assert buffer.nbytes == plain.numel() * 4


def test_spare_room_is_bounded_however_long_the_stream() -> None:
    buffer = SlotBuffer(torch.zeros(1, 1, 0, 4))
    for _ in range(2_000):
        buffer.append(torch.zeros(1, 1, 1, 4))
        if len(buffer) > 100:
            buffer.keep(np.arange(1, len(buffer)))
        assert buffer.allocated_nbytes <= (100 + 3 * 64) * 4 * 4


def test_a_large_drop_gives_memory_back() -> None:
    buffer = SlotBuffer(torch.zeros(1, 1, 1_000, 4))
    buffer.keep(np.arange(0, 1_000, 100))
    assert buffer.allocated_nbytes < 100 * 4 * 4


def test_rows_can_be_replaced_and_transformed() -> None:
    buffer = SlotBuffer(torch.zeros(2, 1, 3, 1))
    buffer.write(1, torch.tensor([[[5.0]], [[6.0]]]))
    assert buffer.gather(np.array([1])).flatten().tolist() == [5.0, 6.0]
    buffer.transform(lambda rows: rows.flip(0))
    assert buffer.view[:, 0, 1, 0].tolist() == [6.0, 5.0]
