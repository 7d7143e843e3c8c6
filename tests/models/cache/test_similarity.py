from __future__ import annotations

import numpy as np
import torch

from audiokv.models.cache.layers import SlotLayer
from audiokv.models.cache.similarity import key_similarity


def layer_of(keys: torch.Tensor, *, per_head: bool = False) -> SlotLayer:
    layer = SlotLayer(
        is_causal=True,
        per_head=per_head,
        rotation=lambda: None,
        n_probed=0,
        attended=lambda *_: None,
    )
    layer.update(keys, torch.zeros_like(keys))
    return layer


def test_is_the_cosine_to_the_mean_direction() -> None:
    keys = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])[None, None]
    similarity = key_similarity([layer_of(keys)], np.arange(3))
    mean = np.array([2, 1]) / np.sqrt(5)
    assert np.allclose(similarity, [mean[0], mean[0], mean[1]], atol=1e-6)


def test_averages_over_layers_and_heads_that_hold_the_slot() -> None:
    keys = torch.randn(1, 2, 4, 8)
    layers = [layer_of(keys[:, head : head + 1]) for head in range(2)]
    separate = [key_similarity([layer], np.arange(4)) for layer in layers]
    both = layer_of(keys, per_head=True)
    assert np.allclose(key_similarity([both], np.arange(4)), np.mean(separate, axis=0))
    both.stores[1].keep([])
    assert np.allclose(key_similarity([both], np.arange(4)), separate[0])


def test_follows_slots_into_int8() -> None:
    layer = layer_of(torch.randn(1, 2, 6, 8))
    before = key_similarity([layer], np.arange(6))
    layer.stores[0].quantize([1, 4])
    assert np.allclose(key_similarity([layer], np.arange(6)), before, atol=0.02)
