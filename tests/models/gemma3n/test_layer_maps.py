"""Which layers of E2B and E4B hold keys, who reads them, and what a slot takes; from the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma3nTextConfig, Gemma3nTextModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from audiokv.models.cache import ATTENTION, BudgetedCache
from audiokv.models.cache.layers import SlotLayer

if TYPE_CHECKING:
    from collections.abc import Mapping

FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW = 512


@dataclass(frozen=True)
class Size:
    """The published numbers of one size.

    Attributes:
        config: What its ``config.json`` says of the layers.
        full: All full-attention layers.
        readers: Layers that read another's keys, by whose keys these are.
    """

    config: Mapping[str, Any]
    full: list[int]
    readers: dict[int, list[int]]


SIZES = {
    "E2B": Size(
        {"num_hidden_layers": 30, "num_kv_shared_layers": 10, "intermediate_size": 8192},
        [4, 9, 14, 19, 24, 29],
        {19: [24, 29], 18: [20, 21, 22, 23, 25, 26, 27, 28]},
    ),
    "E4B": Size(
        {"num_hidden_layers": 35, "num_kv_shared_layers": 15, "intermediate_size": 16384},
        [4, 9, 14, 19, 24, 29, 34],
        {19: [24, 29, 34], 18: [20, 21, 22, 23, 25, 26, 27, 28, 30, 31, 32, 33]},
    ),
}
BOUNDED = [4, 9, 14, 19]
PRODUCERS = list(range(20))
# Real layers, but small: for what has to be run.
SMALL: dict[str, Any] = {
    "vocab_size": 32,
    "vocab_size_per_layer_input": 32,
    "hidden_size": 16,
    "hidden_size_per_layer_input": 4,
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "head_dim": 4,
    "laurel_rank": 2,
}


def config_of(size: str, **changes: Any) -> Any:
    made: Any = Gemma3nTextConfig(**(dict(SIZES[size].config) | changes))
    made._attn_implementation = ATTENTION
    return made


def filled(cache: BudgetedCache, layers: list[int], n_slots: int) -> None:
    """Give layers keys and values of the real shape."""
    for layer in layers:
        states = torch.zeros(1, 2, n_slots, 256, dtype=torch.bfloat16)
        cache.update(states, states, layer)


def key_value_bytes(layers: list[Any]) -> int:
    """Bytes of keys and values; without positions, which every cache of ours keeps beside them."""
    return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in layers)


@pytest.mark.parametrize("size", SIZES)
def test_only_the_first_twenty_layers_make_keys(size: str) -> None:
    with torch.device("meta"):
        model: Any = Gemma3nTextModel(config_of(size))
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    made = [index for index, layer in enumerate(model.layers) if hasattr(layer.self_attn, "k_proj")]
    assert made == PRODUCERS
    stored = [i for i, layer in enumerate(model.layers) if layer.self_attn.store_full_length_kv]
    assert stored == [18, 19]


@pytest.mark.parametrize("size", SIZES)
def test_the_cache_bounds_the_full_layers_that_make_keys(size: str) -> None:
    config = config_of(size)
    full = [index for index, kind in enumerate(config.layer_types) if kind == FULL]
    assert full == SIZES[size].full
    cache = BudgetedCache(config, 64)
    layers: list[Any] = cache.layers
    assert [i for i, layer in enumerate(layers) if isinstance(layer, SlotLayer)] == BOUNDED
    assert [layers.index(layer) for layer in cache.producers] == BOUNDED
    sliding = [i for i, layer in enumerate(layers) if getattr(layer, "sliding_window", 0)]
    assert sliding == [i for i in PRODUCERS if i not in BOUNDED]
    assert {layers[i].sliding_window for i in sliding} == {WINDOW}


@pytest.mark.parametrize("size", SIZES)
def test_a_slot_takes_what_its_layers_keep(size: str) -> None:
    def held_after(n_slots: int) -> tuple[int, int]:
        cache = BudgetedCache(config_of(size), 4096)
        filled(cache, PRODUCERS, n_slots)
        made: list[Any] = cache.layers[:20]
        n_bytes = key_value_bytes(made)
        assert cache.nbytes - n_bytes < n_slots * 100  # positions and the like
        return n_bytes, key_value_bytes(list(cache.producers))

    assert held_after(7) == (7 * 40_960, 7 * 8_192)
    # Past the window only the four bounded layers grow; the sixteen others hold 16 MiB.
    for n_slots in (600, 700):
        all_bytes, bounded_bytes = held_after(n_slots)
        assert bounded_bytes == n_slots * 8_192
        assert all_bytes - bounded_bytes == 16 * 511 * 2_048


@pytest.mark.parametrize("size", SIZES)
def test_layers_without_keys_read_those_of_layers_18_and_19_and_what_left_is_gone_for_all(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[int, torch.Tensor] = {}
    attend: Any = ALL_ATTENTION_FUNCTIONS[ATTENTION]

    def watched(module: Any, query: Any, key: Any, *rest: Any, **call: Any) -> Any:
        read[module.layer_idx] = key
        return attend(module, query, key, *rest, **call)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, ATTENTION, watched)
    torch.manual_seed(0)
    model: Any = Gemma3nTextModel(config_of(size, **SMALL))
    model.eval()
    cache = BudgetedCache(model.config, 10, "fifo")
    for n_tokens in (30, 1):
        with torch.no_grad():
            model(input_ids=torch.arange(n_tokens)[None], cache=cache, use_cache=True)
    assert sorted(read) == list(range(len(model.layers)))
    owners = {
        index: next(first for first in PRODUCERS if read[first] is key)
        for index, key in read.items()
        if index not in PRODUCERS
    }
    assert owners == {index: owner for owner, all_ in SIZES[size].readers.items() for index in all_}
    # Ten were left of thirty, and one came; sliding layers still hold all of so few.
    assert {index for index, key in read.items() if key.shape[2] == 11} == set(SIZES[size].full)
    assert {key.shape[2] for index, key in read.items() if index not in SIZES[size].full} == {31}


@given(
    n_producers=st.integers(2, 14),
    n_shared=st.integers(0, 8),
    pattern=st.integers(2, 6),
)
@settings(max_examples=25, deadline=None)
def test_any_layer_map_is_read_from_the_config(
    n_producers: int, n_shared: int, pattern: int
) -> None:
    kinds = [FULL if (i + 1) % pattern == 0 else SLIDING for i in range(n_producers + n_shared)]
    kinds[0], kinds[n_producers - 1] = SLIDING, FULL  # a reader needs a producer of its kind
    config: Any = Gemma3nTextConfig(
        num_hidden_layers=len(kinds),
        num_kv_shared_layers=n_shared,
        layer_types=kinds,
        activation_sparsity_pattern=[0.0] * len(kinds),
    )
    config._attn_implementation = ATTENTION
    cache = BudgetedCache(config, 64)
    layers: list[Any] = cache.layers
    bounded = [i for i, layer in enumerate(layers[:n_producers]) if isinstance(layer, SlotLayer)]
    assert bounded == [i for i in range(n_producers) if kinds[i] == FULL]
    assert len(cache.producers) == len(bounded)
    filled(cache, list(range(n_producers)), 3)
    assert key_value_bytes(layers[:n_producers]) == 3 * n_producers * 2_048
    assert key_value_bytes(list(cache.producers)) == 3 * len(bounded) * 2_048
