from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from audiokv.models.cache import BudgetedCache, limits_by_scores
from audiokv.models.cache.scored_heads import by_key_head, policy_by_head_scores
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.assembly import DEFAULT_OPTIONS, DriverOptions
from audiokv.streaming.policy.profiles import PolicyProfile
from audiokv.streaming.policy.registry import policy_by_name
from audiokv.streaming.policy.smoothing import MedianTrendSmoother

if TYPE_CHECKING:
    from collections.abc import Callable

SCORES = np.array([[0.1, 0.0, 0.2, 0.2], [0.3, 0.3, 0.0, 0.1], [0.4, 0.2, 0.1, 0.1]])


def test_query_heads_that_share_a_key_head_are_added_up() -> None:
    assert by_key_head(SCORES, (3, 2)) == pytest.approx(
        np.array([[0.1, 0.4], [0.6, 0.1], [0.6, 0.2]])
    )
    assert np.array_equal(by_key_head(SCORES, (3, 4)), SCORES)


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (3, 8)])
def test_scores_of_another_model_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        by_key_head(SCORES, shape)
    assert caught.value.code == "head_scores_misfit"
    with pytest.raises(ConfigError):
        by_key_head(SCORES[0], shape)


def test_other_policies_do_not_go_by_scores() -> None:
    with pytest.raises(ConfigError, match="fifo") as caught:
        policy_by_head_scores(policy_by_name("fifo"), SCORES, (3, 4), DEFAULT_OPTIONS)
    assert caught.value.code == "head_scores_unused"


def test_profile_and_smoother_are_passed_on() -> None:
    shared = policy_by_name("audiokv")
    options = DriverOptions(PolicyProfile(median_slots=9, voice_weight=0.75))
    policy = policy_by_head_scores(shared, SCORES, (3, 4), options)
    assert policy.shared is shared
    assert policy.voice_weight == 0.75
    assert policy.smoother == MedianTrendSmoother(9)
    chosen = MedianTrendSmoother(3)
    options = DriverOptions(smoother=chosen)
    assert policy_by_head_scores(shared, SCORES, (3, 4), options).smoother is chosen


def test_heads_of_a_cache_hold_by_their_scores_at_the_same_total(
    make_tiny: Callable[[str], Any],
) -> None:
    llama = make_tiny("llama")
    cache = BudgetedCache(llama.config, budget=20, head_scores=SCORES)
    wrapped = llama.wrap(cache)
    for seed, length in enumerate([60, 1, 3]):
        llama.step(llama.tokens(length, seed), wrapped)
        held = np.array([[len(store) for store in layer.stores] for layer in cache.producers])
        assert held.sum() == 20 * 3 * 2
        assert cache.held_per_head == 20
    key_scores = by_key_head(SCORES, (3, 2))
    expected = 120 * (0.5 / 6 + 0.5 * key_scores / key_scores.sum())
    assert np.abs(held - expected).max() <= 2
    even = BudgetedCache(llama.config, budget=20, head_scores=np.ones((3, 2)))
    llama.step(llama.tokens(60, 0), llama.wrap(even))
    assert {len(store) for layer in even.producers for store in layer.stores} == {20}


def test_fixed_limits_by_scores_are_a_budget_of_the_cache(make_tiny: Callable[[str], Any]) -> None:
    llama = make_tiny("llama")
    limits = limits_by_scores(by_key_head(SCORES, (3, 2)), 12)
    cache = BudgetedCache(llama.config, limits, policy="tova")
    llama.step(llama.tokens(60, 0), llama.wrap(cache))
    held = [[len(store) for store in layer.stores] for layer in cache.producers]
    assert np.array_equal(held, limits)
    assert limits.sum() == 12 * 6
