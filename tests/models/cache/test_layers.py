from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from audiokv.models.cache.layers import SlotLayer
from audiokv.models.cache.readout import NO_SLOT, Readout
from audiokv.models.cache.rotary import KeyRotation
from audiokv.streaming.errors import ConfigError


class Attention:
    """Attends to nothing, but says that it did."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, torch.Tensor | None]] = []

    def __call__(self, _: SlotLayer, reader: int, weights: torch.Tensor | None) -> None:
        self.calls.append((reader, weights))


def layer(*, per_head: bool = False, is_causal: bool = True) -> SlotLayer:
    return SlotLayer(
        is_causal=is_causal,
        per_head=per_head,
        rotation=lambda: KeyRotation(torch.tensor([1.0, 0.1])),
        n_probed=3,
        attended=Attention(),
    )


def update(slots: SlotLayer, n_slots: int, *, batch: int = 1) -> Readout:
    keys, _ = slots.update(torch.randn(batch, 2, n_slots, 4), torch.randn(batch, 2, n_slots, 4))
    readout = Readout.of(keys)
    assert readout is not None
    readout.attended(0, None)
    return readout


def test_a_new_layer_holds_nothing() -> None:
    slots = layer()
    assert slots.keys is None
    assert slots.values is None
    assert (slots.held, slots.seen, slots.nbytes, slots.batch_size) == (0, 0, 0, -1)
    slots.crop(-3)
    assert slots.get_seq_length() == 0


def test_answers_with_the_logical_length_whatever_it_holds() -> None:
    slots = layer()
    update(slots, 6)
    slots.stores[0].keep([1, 4])
    readout = update(slots, 2)
    assert (slots.held, slots.get_seq_length(), slots.get_max_length()) == (4, 8, -1)
    assert slots.get_mask_sizes(3) == (3, 8)
    assert readout.positions.tolist() == [1, 4, 6, 7]
    assert (readout.end, readout.n_probed) == (8, 3)


def test_heads_with_fewer_slots_are_padded() -> None:
    slots = layer(per_head=True)
    update(slots, 4)
    slots.stores[0].keep([3])
    readout = update(slots, 1)
    assert readout.positions.tolist() == [[3, 4, NO_SLOT, NO_SLOT, NO_SLOT], [0, 1, 2, 3, 4]]
    assert slots.keys is not None
    assert slots.values is not None
    assert slots.keys.shape == slots.values.shape == (1, 2, 5, 4)
    assert slots.held == 5


def test_counts_of_shared_slots_follow_the_order_of_the_keys() -> None:
    slots = layer()
    update(slots, 5)
    slots.stores[0].merge([[1, 2]], [1], None)
    slots.stores[0].quantize([2])
    readout = update(slots, 1)
    assert readout.positions.tolist() == [3, 0, 1, 4, 5]
    assert readout.log_multiplicity is not None
    assert np.allclose(np.exp(readout.log_multiplicity), [1, 1, 2, 1, 1])


@pytest.mark.parametrize("is_causal", [True, False])
def test_notices_when_another_attention_read_its_keys(*, is_causal: bool) -> None:
    slots = layer(is_causal=is_causal)
    slots.update(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))
    new = torch.randn(1, 2, 1, 4)
    read_again = partial(slots.update, new, new) if is_causal else partial(getattr, slots, "keys")
    with pytest.raises(ConfigError) as error:
        read_again()
    assert error.value.code == "attention_unsupported"
    assert "set_attn_implementation" in error.value.remedy


def test_tells_who_attended() -> None:
    slots = layer()
    keys, _ = slots.update(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))
    readout = Readout.of(keys)
    assert readout is not None
    weights = torch.ones(1)
    readout.attended(7, weights)
    assert isinstance(slots._attended, Attention)
    assert slots._attended.calls == [(7, weights)]


def test_cross_attention_has_no_end() -> None:
    assert update(layer(is_causal=False), 3).end is None


def test_crop_takes_only_negative_numbers() -> None:
    slots = layer()
    update(slots, 6)
    slots.stores[0].keep([0, 3, 5])
    slots.crop(-2)
    assert (slots.seen, slots.stores[0].positions.tolist()) == (4, [0, 3])
    with pytest.raises(ValueError, match="negated"):
        slots.crop(2)


def test_shift_moves_slots_and_counter() -> None:
    slots = layer()
    update(slots, 6)
    slots.shift(-4)
    assert (slots.seen, slots.stores[0].positions.tolist()) == (2, [-4, -3, -2, -1, 0, 1])
    assert update(slots, 1).shifted == 4


def test_reset_forgets_everything() -> None:
    slots = layer()
    slots.update(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))
    slots.reset()
    assert (slots.held, slots.seen, slots.is_initialized) == (0, 0, False)
    assert update(slots, 2).positions.tolist() == [0, 1]


def test_batch_rows_can_be_repeated_selected_and_reordered() -> None:
    slots = layer()
    update(slots, 3, batch=2)
    assert slots.keys is not None
    before = slots.keys.clone()
    slots.batch_repeat_interleave(2)
    assert slots.batch_size == 4
    slots.batch_select_indices(torch.tensor([0, 2]))
    assert torch.equal(slots.keys, before)
    slots.reorder_cache(torch.tensor([1, 1]))
    assert torch.equal(slots.keys, before[[1, 1]])
    assert slots.allocated_nbytes >= slots.nbytes > 0
