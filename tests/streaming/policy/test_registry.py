from __future__ import annotations

import pytest

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.profiles import PolicyProfile, profile_by_name
from audiokv.streaming.policy.registry import POLICY_NAMES, audiokv_policy, policy_by_name


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_answers_to_its_name(name: str) -> None:
    assert policy_by_name(name).name == name
    assert policy_by_name(name) == policy_by_name(name)


def test_all_policies_of_the_method_are_there() -> None:
    assert set(POLICY_NAMES) == {
        "audiokv",
        "full",
        "random",
        "uniform",
        "sinks+uniform",
        "fifo",
        "lru",
        "streaming-llm",
        "h2o",
        "tova",
        "snapkv",
        "pyramidkv",
        "adakv",
        "keydiff",
    }


def test_audiokv_takes_the_slot_and_the_profile() -> None:
    policy = policy_by_name("audiokv", 160, profile_by_name("stutter"))
    assert isinstance(policy, AudioKvPolicy)
    assert policy == audiokv_policy(160, profile_by_name("stutter"))
    assert policy.guards.slot_ms == 160
    assert policy.guards.min_retention_ms == 400
    assert audiokv_policy(20, PolicyProfile(language_share=0.4)).languages.share == 0.4


def test_an_unknown_policy_is_named_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"'clairvoyant'.*streaming-llm") as caught:
        policy_by_name("clairvoyant")
    assert caught.value.code == "unknown_policy"
