from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import Qwen3NextConfig
from transformers.cache_utils import DynamicCache

from audiokv.models.cache import SlotCache
from audiokv.models.probe import AttentionProbe
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERANCE = 2e-5


@pytest.fixture
def llama(make_tiny: Callable[[str], Any]) -> Any:
    return make_tiny("llama")


@pytest.fixture
def whisper(make_tiny: Callable[[str], Any]) -> Any:
    return make_tiny("whisper")


def test_manages_only_full_attention_producers(tiny: Any) -> None:
    cache = SlotCache(tiny.config)
    managed = [cache.layers.index(layer) for layer in cache.producers]
    assert managed == tiny.full_producers()
    assert len(cache) == len(tiny.attentions())


def test_bytes_are_those_of_transformers_cache_and_what_describes_the_slots(
    tiny: Any, plain: Any
) -> None:
    cache, theirs = SlotCache(tiny.config), plain.own_cache()
    tiny.step(tiny.tokens(20), tiny.wrap(cache))
    plain.step(tiny.tokens(20), theirs)
    own = theirs.self_attention_cache if tiny.family == "whisper" else theirs
    expected = sum(
        layer.keys.nbytes + layer.values.nbytes for layer in own.layers if layer.keys is not None
    )
    described = len(cache.producers) * 20 * (8 + 4 + 1)
    assert cache.nbytes == expected + described
    cache.trim()
    assert cache.allocated_nbytes == cache.budgeted_nbytes
    held = cache.budgeted_nbytes
    cache.keep([3])
    assert cache.budgeted_nbytes * 20 == held


def test_importance_is_what_explicit_attention_gives(tiny: Any) -> None:
    cache = SlotCache(tiny.config, probe=AttentionProbe(n_queries=2))
    wrapped = tiny.wrap(cache)
    explicit = tiny.twin("eager")
    theirs = explicit.own_cache()
    for n_tokens in (9, 4, 1):
        tiny.step(tiny.tokens(n_tokens, seed=n_tokens), wrapped)
        weights = explicit.attention(tiny.tokens(n_tokens, seed=n_tokens), theirs)
        assert cache.importance is not None
        for index, producer in enumerate(tiny.full_producers()):
            readers = [
                layer.unflatten(0, (2, -1))[:, :, -2:].mean(dim=(1, 2))
                for i, layer in enumerate(weights)
                if tiny.producer_of(i) == producer
            ]
            expected = torch.stack(readers).mean(dim=0).numpy()
            assert np.allclose(cache.importance[index], expected, atol=1e-5)


def test_importance_follows_rows_of_ragged_and_int8_slots(llama: Any) -> None:
    probe, same_probe = AttentionProbe(), AttentionProbe()
    ragged = SlotCache(llama.config, per_head=True, probe=probe)
    level = SlotCache(llama.config, probe=same_probe)
    for cache in (ragged, level):
        llama.step(llama.tokens(8), cache)
    level.quantize([2, 5])
    mask = np.ones((3, 2, 8), np.bool_)
    mask[0, 0, 3] = mask[2, 1, 6] = False
    ragged.hold(mask)
    for cache in (ragged, level):
        llama.step(llama.tokens(1, seed=1), cache)
    assert ragged.importance is not None
    assert level.importance is not None
    assert ragged.importance[0, 0, 3] == ragged.importance[2, 1, 6] == 0
    assert np.allclose(ragged.importance.sum(axis=-1), 1)
    assert np.allclose(ragged.importance[0, 1], level.importance[0, 1], atol=0.01)


def test_a_probe_changes_logits_by_rounding_only(tiny: Any) -> None:
    logits = []
    for probe in (None, AttentionProbe()):
        wrapped = tiny.wrap(SlotCache(tiny.config, probe=probe))
        logits.append([tiny.step(tiny.tokens(n), wrapped) for n in (9, 3, 1)])
    for without, probed in zip(*logits, strict=True):
        assert torch.allclose(without, probed, atol=TOLERANCE)


def test_silence_of_ragged_heads_is_shared_by_each_for_what_it_holds(llama: Any) -> None:
    cache = SlotCache(llama.config, per_head=True)
    llama.step(llama.tokens(10), cache)
    mask = np.ones((3, 2, 10), np.bool_)
    mask[0, 0, [2, 3]] = False
    mask[0, 1, [2, 3, 4, 5]] = False
    cache.hold(mask)
    cache.share([0, 1, 2, 6, 7, 8, 9])
    assert cache.positions.tolist() == [0, 1, 2, 6, 7, 8, 9]
    stores = cache.producers[0].stores + cache.producers[1].stores
    assert stores[0].positions.tolist() == [0, 1, 2, 6, 7, 8, 9]
    assert [int(store.multiplicity.sum()) for store in stores] == [8, 6, 10, 10]
    assert llama.step(llama.tokens(2), cache).isfinite().all()


def test_heads_cannot_differ_where_they_share_their_slots(llama: Any) -> None:
    cache = SlotCache(llama.config)
    llama.step(llama.tokens(4), cache)
    mask = np.ones((3, 2, 4), np.bool_)
    mask[1, 0, 2] = False
    with pytest.raises(ConfigError) as error:
        cache.hold(mask)
    assert error.value.code == "heads_unsupported"
    mask[1, 1, 2] = False
    cache.hold(mask)
    assert [layer.held for layer in cache.producers] == [4, 3, 4]


def test_a_model_with_another_attention_is_refused(plain: Any) -> None:
    with pytest.raises(ConfigError) as error:
        SlotCache(plain.config)
    assert error.value.code == "attention_unsupported"
    assert "sdpa" in error.value.message


def test_tails_open_and_close_in_turn(llama: Any) -> None:
    cache = SlotCache(llama.config)
    with pytest.raises(ConfigError, match="no open tail"):
        cache.rollback_tail()
    with pytest.raises(ConfigError, match="no open tail"):
        cache.commit_tail()
    cache.open_tail()
    with pytest.raises(ConfigError, match="has an open tail"):
        cache.open_tail()
    cache.rollback_tail()
    cache.open_tail()


def test_layers_that_cannot_go_back_refuse_a_tail() -> None:
    ours: dict[str, Any] = {"attn_implementation": "audiokv"}
    config = Qwen3NextConfig(
        **ours,
        num_hidden_layers=4,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        layer_types=["linear_attention", "full_attention"] * 2,
    )
    cache = SlotCache(config)
    assert len(cache.producers) == 2
    with pytest.raises(ConfigError) as error:
        cache.open_tail()
    assert error.value.code == "tail_unsupported"


@pytest.mark.parametrize("by", [-1, 27])
def test_nothing_moves_further_than_full_windows_allow(
    make_tiny: Callable[[str], Any], by: int
) -> None:
    tiny = make_tiny("gemma3n")
    cache = SlotCache(tiny.config)
    tiny.step(tiny.tokens(32), cache)
    with pytest.raises(ConfigError) as error:
        cache.reanchor(by)
    assert error.value.code == "reanchor_too_far"
    assert cache.reanchor(26) == 26
    assert cache.get_seq_length() == 6


def test_moving_by_many_short_steps_is_as_moving_once(llama: Any) -> None:
    keys = []
    for moves in ([24], [1] * 24):
        cache = SlotCache(llama.config)
        llama.step(llama.tokens(30), cache)
        for by in moves:
            cache.reanchor(by)
        layer = cache.producers[2].keys
        assert layer is not None
        keys.append(layer.clone())
    assert torch.allclose(keys[0], keys[1], atol=1e-4)


@pytest.mark.parametrize("per_head", [False, True])
def test_cross_attention_slots_are_as_if_masked(whisper: Any, *, per_head: bool) -> None:
    plain = whisper.twin("sdpa")
    cross = SlotCache(whisper.config, is_cross=True, per_head=per_head)
    ours = whisper.wrap(DynamicCache(), cross)
    theirs = plain.wrap(DynamicCache())
    kept = np.random.default_rng(5).random((2, 2, 30)) < 0.4
    if not per_head:
        kept[:] = kept[0, 0]
    first = [whisper.step(whisper.tokens(4), ours), plain.step(whisper.tokens(4), theirs)]
    assert torch.equal(*first)
    cross.hold(kept)
    hooks = plain.mask_cross_attention(kept)
    for n_tokens in (1, 3):
        tokens = whisper.tokens(n_tokens, seed=n_tokens)
        evicted, masked = whisper.step(tokens, ours), plain.step(tokens, theirs)
        assert torch.allclose(evicted, masked, atol=TOLERANCE)
        assert cross.held == kept.any(axis=(0, 1)).sum()
    for hook in hooks:
        hook.remove()
    assert not torch.allclose(plain.step(tokens, theirs), masked, atol=1e-3)


def test_equal_frames_of_cross_attention_share_a_slot_without_a_trace(whisper: Any) -> None:
    frames = whisper.frames
    whisper.frames = frames.clone()
    whisper.frames[:, 10:20] = frames[:, 10:11]
    logits = []
    for kept in (range(30), [*range(11), *range(20, 30)]):
        cross = SlotCache(whisper.config, is_cross=True)
        wrapped = whisper.wrap(DynamicCache(), cross)
        whisper.step(whisper.tokens(3), wrapped)
        cross.share(kept)
        assert cross.held == len(kept)
        logits.append(whisper.step(whisper.tokens(2, seed=1), wrapped))
    assert torch.allclose(logits[0], logits[1], atol=TOLERANCE)
    whisper.frames = frames
