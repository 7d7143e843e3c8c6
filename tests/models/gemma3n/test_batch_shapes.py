from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.gemma3n.batch_shapes import ExactShapes, FixedShapes, shapes_for


@given(st.integers(1, 5_000))
def test_whatever_is_wanted_fits(n_wanted: int) -> None:
    for shapes in (ExactShapes(), FixedShapes()):
        assert shapes.n_streams(n_wanted) >= n_wanted
        assert shapes.n_new(n_wanted) >= n_wanted
        assert shapes.n_rows(n_wanted) > n_wanted


def test_exact_shapes_pad_nothing_but_leave_a_tail_some_room() -> None:
    shapes = ExactShapes()
    assert [shapes.n_streams(5), shapes.n_new(13)] == [5, 13]
    assert shapes.n_rows(100) == 132


def test_fixed_shapes_are_few() -> None:
    shapes = FixedShapes()
    wanted = range(1, 1_025)
    assert {shapes.n_streams(n) for n in range(1, 65)} == {1, 2, 4, 8, 16, 32, 64}
    assert sorted({shapes.n_new(n) for n in wanted}) == [1, 8, 16, 32, 64, 128, 256, 512, 1024]
    sizes = sorted({shapes.n_rows(n) for n in wanted})
    assert sizes == [48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536]
    assert all(shapes.n_rows(n) <= max(64, 1.5 * (n + 32)) for n in wanted)


def test_an_accelerator_is_given_fixed_shapes() -> None:
    assert isinstance(shapes_for(torch.device("cuda")), FixedShapes)
    assert isinstance(shapes_for(torch.device("cpu")), ExactShapes)
