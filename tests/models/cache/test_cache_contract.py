"""What caches promise to every model class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationMixin, StoppingCriteria, StoppingCriteriaList
from transformers.modeling_outputs import BaseModelOutput

from audiokv.models.cache import BudgetedCache, SlotCache
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.registry import POLICY_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The models' logits spread by about 0.1; other kernels and orders of summation move them by a few
# units of float32's last place, through up to eight layers.
TOLERANCE = 2e-5

STEPS = st.lists(st.integers(1, 6), min_size=2, max_size=6)
SEED = st.integers(0, 2**32 - 1)
quick = settings(max_examples=10, deadline=None)


def parts(tokens: torch.Tensor, lengths: list[int]) -> Iterator[torch.Tensor]:
    starts = np.cumsum([0, *lengths])
    for start, length in zip(starts, lengths, strict=False):
        yield tokens[:, start : start + length]


def snapshot(cache: SlotCache) -> list[torch.Tensor]:
    tensors = []
    layers: list[Any] = cache.layers
    for layer in layers:
        if layer.keys is not None:
            tensors += [layer.keys.clone(), layer.values.clone()]
    for producer in cache.producers:
        tensors += [torch.from_numpy(store.positions.copy()) for store in producer.stores]
    return tensors


def test_full_retention_gives_the_bits_of_transformers_cache(tiny: Any, plain: Any) -> None:
    @quick
    @given(STEPS)
    def check(lengths: list[int]) -> None:
        ours, theirs = tiny.wrap(SlotCache(tiny.config)), plain.own_cache()
        for tokens in parts(tiny.tokens(40), lengths):
            assert torch.equal(tiny.step(tokens, ours), plain.step(tokens, theirs))

    check()


def test_evicted_slots_are_as_if_masked(tiny: Any, new_reference: Callable[[], Any]) -> None:
    @quick
    @given(STEPS, st.data())
    def check(lengths: list[int], data: st.DataObject) -> None:
        cache = SlotCache(tiny.config)
        wrapped, reference = tiny.wrap(cache), new_reference()
        for tokens in parts(tiny.tokens(40), lengths):
            ours, masked = tiny.step(tokens, wrapped), reference.step(tokens)
            assert torch.allclose(ours, masked, atol=TOLERANCE)
            rows = sorted(data.draw(st.sets(st.sampled_from(range(cache.held)))))
            reference.hold(cache.positions[rows])
            cache.keep(rows)
            assert cache.held == len(rows)
            assert cache.seen == wrapped.get_seq_length()

    check()


def test_eviction_changes_the_answer_far_beyond_the_tolerance(tiny: Any) -> None:
    logits = []
    for rows in (range(20), range(0, 20, 3)):
        cache = SlotCache(tiny.config)
        wrapped = tiny.wrap(cache)
        tiny.step(tiny.tokens(20), wrapped)
        cache.keep(rows)
        logits.append(tiny.step(tiny.tokens(1, seed=1), wrapped))
    assert (logits[0] - logits[1]).abs().max() > 20 * TOLERANCE


def test_ragged_heads_and_layers_are_as_if_masked(
    tiny: Any, new_reference: Callable[[], Any]
) -> None:
    @quick
    @given(STEPS, SEED)
    def check(lengths: list[int], seed: int) -> None:
        chance = np.random.default_rng(seed)
        cache = SlotCache(tiny.config, per_head=True)
        wrapped, reference = tiny.wrap(cache), new_reference()
        for tokens in parts(tiny.tokens(40), lengths):
            ours, masked = tiny.step(tokens, wrapped), reference.step(tokens)
            assert torch.allclose(ours, masked, atol=TOLERANCE)
            mask = chance.random((len(cache.producers), 2, cache.held)) < 0.6
            for layer, by_head in enumerate(mask):
                for head, kept in enumerate(by_head):
                    reference.hold(cache.positions[kept], layer, head)
            cache.hold(mask)

    check()


def test_chunks_are_as_one_shot(tiny: Any) -> None:
    @quick
    @given(STEPS)
    def check(lengths: list[int]) -> None:
        tokens = tiny.tokens(40)[:, : sum(lengths)]
        whole = tiny.step(tokens, tiny.wrap(SlotCache(tiny.config)))
        wrapped = tiny.wrap(SlotCache(tiny.config))
        chunks = [tiny.step(part, wrapped) for part in parts(tokens, lengths)]
        assert torch.allclose(torch.cat(chunks, dim=1), whole, atol=TOLERANCE)

    check()


def test_a_rolled_back_tail_leaves_no_trace(tiny: Any) -> None:
    @quick
    @given(STEPS, STEPS, st.booleans())
    def check(lengths: list[int], tail: list[int], quantize: bool) -> None:  # noqa: FBT001  drawn
        cache = SlotCache(tiny.config)
        wrapped = tiny.wrap(cache)
        for tokens in parts(tiny.tokens(40), lengths):
            tiny.step(tokens, wrapped)
        cache.keep(range(0, cache.held, 2))
        if quantize:
            cache.quantize(range(1, cache.held, 3))
        before = snapshot(cache)
        cache.open_tail()
        for tokens in parts(tiny.tokens(40, seed=2), tail):
            tiny.step(tokens, wrapped)
        assert len(cache.positions) > len(before[-1])
        cache.rollback_tail()
        after = snapshot(cache)
        assert len(before) == len(after)
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))

    check()


@pytest.mark.parametrize("closing", ["rollback_tail", "commit_tail"])
def test_a_closed_tail_leaves_only_what_it_should(tiny: Any, closing: str) -> None:
    logits = []
    for has_tail in (False, True):
        cache = SlotCache(tiny.config)
        wrapped = tiny.wrap(cache)
        tiny.step(tiny.tokens(9), wrapped)
        if has_tail:
            cache.open_tail()
        if has_tail or closing == "commit_tail":
            for seed in range(3):
                tiny.step(tiny.tokens(2, seed), wrapped)
        if has_tail:
            getattr(cache, closing)()
        logits.append(tiny.step(tiny.tokens(4, seed=3), wrapped))
    assert torch.equal(*logits)


def test_a_shared_slot_counts_as_its_copies(tiny: Any) -> None:
    logits = []
    for is_shared in (False, True):
        cache = SlotCache(tiny.config)
        wrapped = tiny.wrap(cache)
        tiny.step(tiny.tokens(20), wrapped)
        twin = SlotCache(tiny.config)
        tiny.step(tiny.tokens(20), tiny.wrap(twin))
        twin.share([*range(6), *range(13, 20)])
        if is_shared:
            cache.share([*range(6), *range(13, 20)])
        else:
            for layer, shared in zip(cache.producers, twin.producers, strict=True):
                # Slots 5 to 12 each get what the shared slot holds: its eight copies.
                for part, merged in zip(
                    layer.stores[0]._precise, shared.stores[0]._precise, strict=True
                ):
                    for row in range(5, 13):
                        part.write(row, merged.read()[:, :, 5])
        assert cache.held == (13 if is_shared else 20)
        logits.append([tiny.step(tiny.tokens(n, seed=5), wrapped) for n in (1, 3)])
    for copies, shared_slot in zip(*logits, strict=True):
        assert torch.allclose(copies, shared_slot, atol=TOLERANCE)


def test_int8_slots_are_close_smaller_and_promoted_as_they_are(tiny: Any) -> None:
    def run(*, quantize: bool, promote: bool) -> tuple[torch.Tensor, int]:
        cache = SlotCache(tiny.config)
        wrapped = tiny.wrap(cache)
        tiny.step(tiny.tokens(20), wrapped)
        if quantize:
            cache.quantize(range(3, 20))
        n_bytes = cache.budgeted_nbytes
        if promote:
            cache.promote(range(20))
        return tiny.step(tiny.tokens(3, seed=1), wrapped), n_bytes

    exact, full_bytes = run(quantize=False, promote=False)
    coarse, int8_bytes = run(quantize=True, promote=False)
    promoted, _ = run(quantize=True, promote=True)
    assert int8_bytes < full_bytes
    assert not torch.equal(exact, coarse)
    assert (exact - coarse).abs().max() < 0.05 * exact.abs().max()
    assert torch.allclose(coarse, promoted, atol=TOLERANCE)


def test_reanchoring_leaves_logits_unchanged_or_is_refused(tiny: Any) -> None:
    logits: list[list[torch.Tensor]] = []
    for moves in (False, True):
        cache = SlotCache(tiny.config)
        wrapped = tiny.wrap(cache)
        for tokens in parts(tiny.tokens(40), [20, 5, 7]):
            tiny.step(tokens, wrapped)
        cache.keep([0, 1, 2, *range(12, 32, 2)])
        if moves and tiny.family == "whisper":
            with pytest.raises(ConfigError, match="no rotary"):
                cache.reanchor()
            return
        if moves:
            assert cache.reanchor() == 32 - 13
            assert cache.get_seq_length() == 13
        logits.append([tiny.step(tiny.tokens(n, seed=4), wrapped) for n in (3, 1, 1)])
    for moved, stayed in zip(*logits, strict=True):
        # The models compute angles in float32, so that equal rotations round differently.
        assert torch.allclose(moved, stayed, atol=1e-4)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_holds_the_budget_after_every_step(tiny: Any, policy: str) -> None:
    @settings(max_examples=3, deadline=None)
    @given(st.lists(st.sampled_from([1, 1, 2, 9, 30]), min_size=4, max_size=8))
    def check(lengths: list[int]) -> None:
        cache = BudgetedCache(tiny.config, budget=11, policy=policy)
        wrapped = tiny.wrap(cache)
        for seed, length in enumerate(lengths):
            tiny.step(tiny.tokens(length, seed), wrapped)
            assert cache.held == cache.ledger.held
            if policy == "full":
                assert cache.held == cache.seen
            else:
                assert cache.held <= 11
                assert cache.held >= 10 or cache.seen < 11

    check()


@pytest.mark.parametrize(
    "budget",
    [[5, 9], [[5, 9], [12, 7]]],
    ids=["by layer", "by head"],
)
def test_every_head_holds_its_own_budget_after_every_step(tiny: Any, budget: list[Any]) -> None:
    n_producers = len(tiny.full_producers())
    budget = (budget * 2)[:n_producers]
    cache = BudgetedCache(tiny.config, budget=budget)
    limits = np.broadcast_to(np.array(budget).reshape(n_producers, -1), (n_producers, 2))
    wrapped = tiny.wrap(cache)
    for seed, length in enumerate([20, 1, 1, 6, 1]):
        tiny.step(tiny.tokens(length, seed), wrapped)
        held = [[len(store) for store in layer.stores] for layer in cache.producers]
        assert np.array_equal(held, limits)
        assert cache.held == cache.ledger.held


class _Watch(StoppingCriteria):
    def __init__(self, cache: BudgetedCache) -> None:
        self._cache = cache
        self.held: list[int] = []

    def __call__(self, input_ids: torch.Tensor, _: torch.Tensor, **__: Any) -> torch.Tensor:
        self.held.append(self._cache.held)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def _generate(tiny: Any, cache: Any, **options: Any) -> torch.Tensor:
    inputs: dict[str, Any] = {"input_ids": tiny.tokens(24)}
    if tiny.family == "whisper":
        encoded = BaseModelOutput(last_hidden_state=tiny.frames)
        inputs = {"encoder_outputs": encoded, "decoder_input_ids": tiny.tokens(24)}
    # Whisper wraps the loop in one of its own that wants a tokenizer's tokens.
    made: torch.Tensor = GenerationMixin.generate(
        tiny.model,
        **inputs,
        cache=cache,
        max_new_tokens=12,
        do_sample=False,
        eos_token_id=None,
        **options,
    )
    return made


def test_generate_holds_the_budget_at_every_step(tiny: Any) -> None:
    cache = BudgetedCache(tiny.config, budget=16, policy="audiokv", int8_buffer=True)
    watch = _Watch(cache)
    made = _generate(tiny, tiny.wrap(cache), stopping_criteria=StoppingCriteriaList([watch]))
    assert made.shape[1] == 24 + 12
    assert len(watch.held) == 12
    assert all(15 <= held <= 16 for held in watch.held)


def test_generate_with_room_to_spare_writes_what_transformers_writes(tiny: Any, plain: Any) -> None:
    ours = _generate(tiny, tiny.wrap(BudgetedCache(tiny.config, budget=64)))
    theirs = _generate(plain, plain.own_cache())
    assert torch.equal(ours, theirs)
