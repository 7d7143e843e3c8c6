from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma3n.prefix import LIVE_MEMORY_MS, Prefix, PrefixOptions, live_policy
from audiokv.models.gemma3n.speech_model import Inputs, SpeechModel
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.marks import Keeping, SlotMarks
from audiokv.streaming.policy.profiles import PROFILES
from audiokv.streaming.policy.recency_policies import FifoPolicy
from audiokv.streaming.policy.registry import audiokv_policy
from tests.models.gemma3n.conftest import tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOT_MS = 160


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def opened(speech: SpeechModel, budget: int | None = None, tail_slots: int = 40) -> Prefix:
    return Prefix(speech, PrefixOptions(CacheOptions(budget, "fifo"), SLOT_MS, tail_slots))


def audio(speech: SpeechModel, n_slots: int, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return speech.slots(torch.randn((1, n_slots, 24), generator=generator))


def marks(n_slots: int, first: int = 0) -> list[SlotMarks]:
    return [SlotMarks(SLOT_MS * i, SLOT_MS * (i + 1)) for i in range(first, first + n_slots)]


def filled(speech: SpeechModel, n_slots: int = 20, budget: int | None = None) -> Prefix:
    prefix = opened(speech, budget)
    prefix.append_text([2], 0, is_prompt=True)
    prefix.append_text([3], 0)
    for i in range(n_slots):
        prefix.append(audio(speech, 1, i), marks(1, i))
    return prefix


def snapshot(prefix: Prefix) -> list[torch.Tensor]:
    """Every key and value of every layer that holds any."""
    tensors = [
        part.clone()
        for layer in prefix.cache.producers
        for store in layer.stores
        for part in (store.keys(), store.values())
    ]
    for sliding in prefix.cache._sliding:
        tensors += [sliding._layer.keys.clone(), sliding._layer.values.clone()]
    return tensors


@given(st.integers(0, 30), st.lists(st.integers(6, 47), min_size=1, max_size=20), st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_tail_leaves_every_layer_bit_for_bit(
    speech: SpeechModel,
    n_slots: int,
    tokens: list[int],
    is_bounded: bool,  # noqa: FBT001
) -> None:
    prefix = filled(speech, n_slots, 12 if is_bounded else None)
    before, seen, rows = snapshot(prefix), prefix.cache.seen, prefix.held
    with prefix.tail():
        prefix.run_in_tail(speech.tokens(tokens))
        prefix.run_in_tail(speech.tokens(tokens[:1]))
    assert (prefix.cache.seen, prefix.held) == (seen, rows)
    after = snapshot(prefix)
    assert len(after) == len(before)
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_a_tail_that_fails_is_rolled_back_as_well(speech: SpeechModel) -> None:
    prefix = filled(speech)

    def fail() -> None:
        with prefix.tail():
            prefix.run_in_tail(speech.tokens([7]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert prefix.held == 22
    with prefix.tail():
        pass


def test_the_budget_counts_the_prompt_and_keeps_it(speech: SpeechModel) -> None:
    prefix = filled(speech, 30, 12)
    counters = prefix.counters()
    assert counters is not None
    assert (counters.seen_slots, counters.held_slots, counters.budget_slots) == (32, 12, 12)
    assert prefix.cache.ledger.keeping[0] == Keeping.PROMPT
    per_slot = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, size, bytes
    assert 12 * per_slot <= counters.held_bytes <= 12 * (per_slot + 40)
    assert filled(speech).counters() is None


def test_what_was_forgotten_is_still_counted(speech: SpeechModel) -> None:
    prefix = filled(speech, 5, 12)
    prefix.restart()
    assert prefix.held == 0
    counters = prefix.counters()
    assert counters is not None
    assert (counters.seen_slots, counters.left_slots.expired) == (7, 7)


def test_audio_rows_are_told_from_text_and_from_earlier_audio(speech: SpeechModel) -> None:
    prefix = filled(speech, 4)
    prefix.append_text([7, 8], 4 * SLOT_MS)
    prefix.append(audio(speech, 2), marks(2, 4))
    assert prefix.audio_rows(0).tolist() == [2, 3, 4, 5, 8, 9]
    assert prefix.audio_rows(3 * SLOT_MS).tolist() == [5, 8, 9]
    assert prefix.starts_ms(np.array([5, 8])).tolist() == [480, 640]


def test_the_mark_of_a_segment_is_guarded(speech: SpeechModel) -> None:
    prefix = filled(speech, 10)
    prefix.append_text([3], 10 * SLOT_MS)
    prefix.guard_last(10 * SLOT_MS)
    prefix.append(audio(speech, 2), marks(2, 10))
    assert prefix.cache.ledger.keeping[12:].tolist() == [Keeping.SEGMENT_END, 0, 0]


def test_committed_words_reach_the_policy(speech: SpeechModel) -> None:
    prefix = filled(speech, 10)
    prefix.commit_until(3 * SLOT_MS)
    assert prefix.cache.ledger.is_committed.tolist() == [True] * 5 + [False] * 7


@pytest.mark.parametrize(("budget", "is_room_made"), [(100, True), (40, False)])
def test_room_for_a_step_is_made_ahead_where_the_budget_can_spare_it(
    speech: SpeechModel,
    budget: int,
    is_room_made: bool,  # noqa: FBT001
) -> None:
    prefix = opened(speech, budget)
    prefix.append_text([2], 0, is_prompt=True)
    for i in range(0, 150, 2):
        prefix.append(audio(speech, 2, i), marks(2, i))
        prefix.rest()
        assert prefix.held == prefix.cache.ledger.held <= budget
    counters = prefix.counters()
    assert counters is not None
    assert (counters.left_slots.ahead > 0) == is_room_made
    assert counters.left_slots.forced == (0 if is_room_made else 151 - budget)
    assert prefix.held == (98 if is_room_made else budget)


def test_audiokv_fades_what_was_said_long_ago_and_other_policies_are_as_they_are() -> None:
    ours = audiokv_policy(SLOT_MS, PROFILES["default"])
    assert live_policy(ours) == replace(ours, memory_ms=LIVE_MEMORY_MS)
    set_before = replace(ours, memory_ms=123)
    assert live_policy(set_before) == set_before
    assert live_policy(FifoPolicy()) == FifoPolicy()


def test_the_policy_of_a_live_prefix_has_its_memory(speech: SpeechModel) -> None:
    prefix = Prefix(speech, PrefixOptions(CacheOptions(20, "audiokv"), SLOT_MS, 40))
    policy = prefix.cache.driver.policy
    assert policy == live_policy(audiokv_policy(SLOT_MS, PROFILES["default"]))


def test_positions_never_run_out_and_logits_do_not_change() -> None:
    checkpoint = tiny_checkpoint(max_position_embeddings=80)
    checkpoint.model.language_model.set_attn_implementation("audiokv")
    speech = SpeechModel(checkpoint)
    prefix = opened(speech, 24, tail_slots=30)
    prefix.append_text([2], 0, is_prompt=True)
    for i in range(150):
        prefix.append(audio(speech, 1, i), marks(1, i))
        with prefix.tail():
            before = speech.logits(prefix.run_in_tail(speech.tokens([56, 9, 8])))
        if i % 40 == 35:
            assert prefix.cache.reanchor() > 0
            with prefix.tail():
                after = speech.logits(prefix.run_in_tail(speech.tokens([56, 9, 8])))
            torch.testing.assert_close(after, before, atol=2e-4, rtol=0)
    assert prefix.cache.seen <= 80
    counted = opened(speech, 24, tail_slots=30)
    for i in range(150):
        counted.append(audio(speech, 1, i), marks(1, i))
        with counted.tail():
            counted.run_in_tail(speech.tokens([56]))
    assert counted.n_reanchors >= 2
    assert counted.cache.seen <= 80


def test_a_model_may_have_fewer_positions_than_its_config_says(speech: SpeechModel) -> None:
    options = PrefixOptions(CacheOptions(24, "fifo"), SLOT_MS, 30, max_positions=80)
    prefix = Prefix(speech, options)
    for i in range(100):
        prefix.append(audio(speech, 1, i), marks(1, i))
    assert prefix.n_reanchors >= 1
    assert prefix.cache.seen <= 80


def test_a_budget_beyond_the_positions_is_refused(speech: SpeechModel) -> None:
    with pytest.raises(ConfigError, match="1000 slots"):
        opened(speech, 1000)


def test_the_profile_reaches_the_policy(speech: SpeechModel) -> None:
    with pytest.raises(ConfigError, match="no-such-profile"):
        Prefix(speech, PrefixOptions(CacheOptions(20), SLOT_MS, profile="no-such-profile"))
