from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from audiokv.models.cache import BudgetedCache
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.headwise_policies import PyramidKvPolicy
from audiokv.streaming.policy.marks import Keeping, Pool, SlotMarks

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def llama(make_tiny: Callable[[str], Any]) -> Any:
    return make_tiny("llama")


def run(tiny: Any, cache: BudgetedCache, lengths: list[int]) -> None:
    wrapped = tiny.wrap(cache)
    for seed, length in enumerate(lengths):
        tiny.step(tiny.tokens(length, seed), wrapped)


def test_ledger_and_cache_agree_after_everything(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=12, slot_ms=40, tail_slots=3)
    run(llama, cache, [5, 20, 1])
    cache.open_tail()
    run(llama, cache, [2, 1])
    cache.commit_tail()
    run(llama, cache, [1])
    cache.crop(-1)
    assert cache.ledger.held == cache.held
    positions = cache.ledger.start_ms // 40
    assert positions.tolist() == cache.positions.tolist()
    assert cache.ledger.counts().held_by_pool[Pool.RESERVE] >= 1


def test_what_is_told_about_slots_reaches_the_policy(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=8, policy="fifo", slot_ms=20)
    prompt = [SlotMarks(0, 0, is_prompt=True)] * 3
    cache.expect([*prompt, SlotMarks(0, 20, is_voice=False)])
    run(llama, cache, [4, 30])
    assert cache.ledger.keeping[:3].tolist() == [Keeping.PROMPT] * 3
    assert cache.positions.tolist() == [0, 1, 2, *range(29, 34)]
    assert cache.ledger.end_ms[-1] == 20 * 31


def test_attention_reaches_the_ledger_as_shares(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=40, policy="h2o", per_head=True)
    run(llama, cache, [9])
    assert cache.ledger.heads is not None
    assert np.allclose(cache.ledger.heads.importance.sum(axis=-1), 1, atol=1e-5)
    run(llama, cache, [1])
    latest = cache.ledger.attention.latest
    assert cache.importance is not None
    assert np.allclose(latest, cache.importance.mean(axis=(0, 1)), atol=1e-6)
    assert latest.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("policy", ["fifo", "streaming-llm", "uniform"])
def test_policies_that_ignore_attention_cost_no_probe(llama: Any, policy: str) -> None:
    cache = BudgetedCache(llama.config, budget=8, policy=policy)
    run(llama, cache, [9, 1])
    assert cache.importance is None
    assert cache.ledger.attention.n_probes == 0


def test_tova_evicts_the_slot_that_the_last_query_ignored(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=10, policy="tova")
    run(llama, cache, [10])
    before = cache.positions.copy()
    run(llama, cache, [1])
    assert cache.importance is not None
    received = cache.importance.mean(axis=(0, 1))
    gone = set(before) - set(cache.positions)
    assert gone == {before[received[:10].argmin()]}


def test_keydiff_gets_the_similarity_of_keys(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=10, policy="keydiff")
    run(llama, cache, [14, 1])
    similarity = cache.ledger.attention.key_similarity
    assert np.unique(similarity).size > 5
    assert np.abs(similarity).max() <= 1


def test_a_tail_is_refused_when_it_outgrows_its_room_and_can_still_be_dropped(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=12, tail_slots=4)
    run(llama, cache, [30])
    assert cache.held == 8
    assert cache.room_slots == 4
    before = [layer.keys.clone() for layer in cache.producers if layer.keys is not None]
    cache.open_tail()
    run(llama, cache, [3, 1])
    assert cache.room_slots == 0
    assert cache.ledger.held == 8
    with pytest.raises(ConfigError) as error:
        run(llama, cache, [1])
    assert error.value.code == "tail_too_long"
    cache.rollback_tail()
    for layer, keys in zip(cache.producers, before, strict=True):
        assert layer.keys is not None
        assert torch.equal(layer.keys, keys)
    run(llama, cache, [1])
    assert cache.ledger.held == cache.held == 8


def test_a_tail_asks_the_prefix_but_evicts_nothing(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=12, tail_slots=4)
    run(llama, cache, [30])
    n_probes = cache.ledger.attention.n_probes
    cache.open_tail()
    run(llama, cache, [1, 1])
    assert cache.ledger.attention.n_probes == n_probes + 2
    assert 0 < cache.ledger.attention.latest.sum() < 1
    assert cache.held == 10


def test_the_buffer_pool_is_int8_and_promotion_restores_it(tiny: Any) -> None:
    cache = BudgetedCache(tiny.config, budget=20, int8_buffer=True)
    run(tiny, cache, [20, *[1] * 30])
    store = cache.producers[0].stores[0]
    is_buffer = cache.ledger.pool == Pool.BUFFER
    assert store.is_int8.tolist() == is_buffer.tolist()
    assert 0 < is_buffer.sum() < 20
    plain = BudgetedCache(tiny.config, budget=20)
    run(tiny, plain, [20, *[1] * 30])
    assert cache.budgeted_nbytes < plain.budgeted_nbytes


def test_silence_shares_slots_by_the_ledgers_rule(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=60, slot_ms=100)
    voiced = [True] * 5 + [False] * 10 + [True] * 10
    cache.expect(
        SlotMarks(100 * i, 100 * i + 100, is_voice=is_voice) for i, is_voice in enumerate(voiced)
    )
    run(llama, cache, [25])
    cache.share_silence()
    assert cache.held == cache.ledger.held == 16
    assert cache.ledger.multiplicity.tolist() == [1] * 5 + [10] + [1] * 10
    for layer in cache.producers:
        assert layer.stores[0].multiplicity.tolist() == cache.ledger.multiplicity.tolist()
    run(llama, cache, [3, 1])


def test_cross_attention_is_brought_to_its_budget_after_the_first_step(
    make_tiny: Callable[[str], Any],
) -> None:
    whisper = make_tiny("whisper")
    cross = BudgetedCache(whisper.config, budget=12, is_cross=True)
    wrapped = whisper.wrap(DynamicCache(), cross)
    for seed, n_tokens in enumerate([4, 1, 3]):
        logits = whisper.step(whisper.tokens(n_tokens, seed), wrapped)
        assert logits.isfinite().all()
        assert 11 <= cross.held <= 12
        assert cross.seen == 30


@pytest.mark.parametrize("per_head", [False, True])
def test_held_slots_stay_in_the_budget_for_long_streams_in_constant_memory(
    llama: Any, *, per_head: bool
) -> None:
    policy = "adakv" if per_head else "audiokv"
    cache = BudgetedCache(llama.config, budget=16, policy=policy, per_head=per_head)
    run(llama, cache, [40])
    allocated = []
    for seed in range(150):
        llama.step(llama.tokens(2, seed), cache)
        if cache.seen > 250:
            cache.reanchor()
        assert cache.held_per_head <= 16
        assert cache.ledger.held == cache.held
        allocated.append(cache.allocated_nbytes)
    assert max(allocated[75:]) <= max(allocated[:75])


@pytest.mark.parametrize("beta", [1.0, 20.0])
def test_a_policy_can_be_given_with_its_own_parameters(llama: Any, beta: float) -> None:
    cache = BudgetedCache(llama.config, 12, PyramidKvPolicy(beta=beta), per_head=True)
    run(llama, cache, [40, 1])
    held = [layer.held for layer in cache.producers]
    assert sum(held) == 3 * 12
    assert (held[0] > held[1] > held[2]) == (beta > 1)
    assert cache.driver.policy.name == "pyramidkv"


def test_heads_lose_nothing_while_there_is_room(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=40, policy="adakv", per_head=True)
    run(llama, cache, [30, 10])
    assert all(len(store) == 40 for layer in cache.producers for store in layer.stores)
    run(llama, cache, [1])
    assert cache.held_per_head == 40


def test_reset_starts_over(llama: Any) -> None:
    cache = BudgetedCache(llama.config, budget=12)
    cache.expect([SlotMarks(0, 20)] * 50)
    run(llama, cache, [30])
    cache.reset()
    assert (cache.held, cache.seen, cache.ledger.held) == (0, 0, 0)
    run(llama, cache, [5])
    assert cache.ledger.end_ms.tolist() == [20, 40, 60, 80, 100]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"budget": [3, 4]}, "budget_misfit"),
        ({"budget": [[3, 4, 5]] * 3}, "budget_misfit"),
        ({"budget": 4, "tail_slots": 4}, "budget_too_small"),
        ({"budget": 0}, "budget_too_small"),
        ({"budget": 8, "policy": "mru"}, "unknown_policy"),
    ],
)
def test_settings_that_cannot_be_are_refused(llama: Any, more: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as error:
        BudgetedCache(llama.config, **more)
    assert error.value.code == code
    assert error.value.remedy
