from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from audiokv.models.cache.readout import NO_SLOT, Readout

LOG2 = float(np.log(2.0))


def readout(positions: Any, *, end: int | None, counts: Any = None, shifted: int = 0) -> Readout:
    return Readout(
        positions=np.array(positions, np.int64),
        log_multiplicity=None if counts is None else np.log(np.array(counts, np.float32)),
        end=end,
        shifted=shifted,
        n_probed=0,
        attended=lambda *_: None,
    )


def queries(n_queries: int, n_heads: int = 2) -> torch.Tensor:
    return torch.zeros(1, n_heads, n_queries, 4)


@pytest.mark.parametrize(
    ("positions", "end", "n_queries"),
    [([0, 1, 2], 3, 3), ([1, 7, 9], 10, 1), ([4, 5], None, 3)],
    ids=["first step", "one query", "cross-attention"],
)
def test_the_kernels_know_plain_cases_without_a_mask(
    positions: list[int], end: int | None, n_queries: int
) -> None:
    assert readout(positions, end=end).mask(queries(n_queries), None) is None


def test_each_query_sees_the_slots_up_to_its_own_position() -> None:
    mask = readout([2, 5, 8, 9], end=10).mask(queries(2), None)
    assert mask is not None
    assert mask.tolist() == [[[[True, True, True, False], [True, True, True, True]]]]


def test_dropped_queries_are_the_first_of_the_step() -> None:
    whole = readout([2, 5, 8, 9], end=10)
    mask = whole.mask(queries(2), None)
    assert mask is not None
    last = whole.mask_of_last(queries(2), None, 1)
    assert last is None
    shared = readout([[8, 9], [0, NO_SLOT]], end=10).mask_of_last(queries(2), None, 1)
    assert shared is not None
    assert shared.tolist() == [[[[True, True]], [[True, False]]]]


def test_heads_that_hold_less_are_masked_for_every_query_head_they_serve() -> None:
    mask = readout([[0, 3], [3, NO_SLOT]], end=4).mask(queries(1, n_heads=4), None)
    assert mask is not None
    assert mask[0, :, 0].tolist() == [[True, True]] * 2 + [[True, False]] * 2
    across = readout([[0, 3], [3, NO_SLOT]], end=None).mask(queries(3), None)
    assert across is not None
    assert across.expand(1, 2, 3, 2)[0, 1].tolist() == [[True, False]] * 3


def test_a_shared_slot_adds_the_logarithm_of_its_count() -> None:
    mask = readout([0, 4, 5], end=6, counts=[2, 1, 1]).mask(queries(2), None)
    assert mask is not None
    assert mask.dtype == torch.float32
    assert torch.allclose(mask[0, 0], torch.tensor([[LOG2, 0, -torch.inf], [LOG2, 0, 0]]))


def test_padding_counts_from_the_beginning_whatever_moved() -> None:
    padding = torch.tensor([[True] * 6, [False, False, True, True, True, True]])
    mask = readout([-4, -3, -1, 1, 2], end=2, shifted=5).mask(queries(1), padding)
    assert mask is not None
    # Position 2 is past the query; -4 was position 1 before everything moved back by 5.
    assert mask.shape == (2, 1, 1, 5)
    assert mask[0, 0, 0].tolist() == [True, True, True, True, False]
    assert mask[1, 0, 0].tolist() == [False, True, True, True, False]


def test_slots_newer_than_the_padding_mask_are_seen() -> None:
    mask = readout([0, 1, 2], end=3).mask(queries(1), torch.tensor([[False, True]]))
    assert mask is not None
    assert mask[0, 0, 0].tolist() == [False, True, True]


def test_a_readout_travels_with_its_keys() -> None:
    keys = torch.zeros(1)
    assert Readout.of(keys) is None
    made = readout([0], end=1)
    assert Readout.of(made.attach(keys)) is made
