from __future__ import annotations

import pytest

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.budget import BudgetPreset
from audiokv.streaming.policy.profiles import PROFILES, PolicyProfile, profile_by_name


def test_the_method_names_its_profiles() -> None:
    assert set(PROFILES) == {
        "default",
        "clear",
        "noisy",
        "short",
        "long",
        "meeting",
        "conversation",
        "telephony",
        "stutter",
    }
    assert profile_by_name("default") == PolicyProfile()


def test_profiles_set_what_the_method_says() -> None:
    clear, noisy = profile_by_name("clear").alpha, profile_by_name("noisy").alpha
    assert clear is not None
    assert noisy is not None
    assert 0.2 <= clear <= 0.3
    assert 0.4 <= noisy <= 0.5
    assert profile_by_name("short").preset is BudgetPreset.SHORT
    assert profile_by_name("long").preset is BudgetPreset.LONG
    assert profile_by_name("meeting").sharpness == 0.15
    assert profile_by_name("conversation").sharpness == 0.25
    assert profile_by_name("stutter").median_slots == 15


def test_every_profile_differs_from_every_other() -> None:
    assert len(set(PROFILES.values())) == len(PROFILES)


def test_an_unknown_profile_is_named_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"'singing'.*meeting") as caught:
        profile_by_name("singing")
    assert caught.value.code == "unknown_profile"
