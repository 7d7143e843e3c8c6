from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.column import FIRST_CAPACITY_SLOTS, Column


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 90)), max_size=12),
    st.sampled_from([(), (2, 3)]),
)
def test_it_holds_what_a_list_would(
    moves: list[tuple[bool, int]], leading: tuple[int, ...]
) -> None:
    column = Column(np.int64, leading)
    model: list[int] = []
    for is_append, size in moves:
        if is_append:
            values = list(range(len(model), len(model) + size))
            column.append(values, size)
            model += values
        else:
            kept = np.arange(0, len(model), size % 4 + 1)
            column.keep(kept)
            model = [model[index] for index in kept]
        assert column.rows.shape[-1] == len(model)
        assert (column.rows == np.array(model, np.int64)).all()
        assert column.capacity_slots >= len(model)


def test_capacity_is_kept_and_reused() -> None:
    column = Column(np.float64)
    column.append(np.arange(FIRST_CAPACITY_SLOTS), FIRST_CAPACITY_SLOTS)
    assert column.capacity_slots == FIRST_CAPACITY_SLOTS
    column.append(1.0, 1)
    grown = column.n_bytes
    assert grown == 2 * FIRST_CAPACITY_SLOTS * 8
    for _ in range(500):
        column.keep(np.arange(10))
        column.append(0.0, 100)
    assert column.n_bytes == grown


def test_rows_are_read_only() -> None:
    column = Column(np.float64)
    column.append(1.0, 2)
    with pytest.raises(ValueError, match="read-only"):
        column.rows[0] = 2.0


def test_values_are_replaced_wholly_or_in_part() -> None:
    column = Column(np.int64, (2,))
    column.append(0, 3)
    column.write([1, 2, 3])
    column.write_at(np.array([1]), 9)
    column.write_plane(1, 7)
    assert column.rows.tolist() == [[1, 9, 3], [7, 7, 7]]
    assert np.array_equal(column.rows[0], [1, 9, 3])
