"""All policies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.attention_policies import H2oPolicy, SnapKvPolicy, TovaPolicy
from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.coverage_policies import (
    FullPolicy,
    RandomPolicy,
    SinksUniformPolicy,
    UniformPolicy,
)
from audiokv.streaming.policy.guards import Guards
from audiokv.streaming.policy.headwise_policies import AdaKvPolicy, PyramidKvPolicy
from audiokv.streaming.policy.keydiff import KeyDiffPolicy
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.profiles import PROFILES, PolicyProfile
from audiokv.streaming.policy.recency_policies import FifoPolicy, LruPolicy, StreamingLlmPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.streaming.policy.protocol import EvictionPolicy

WHISPER_SLOT_MS = 20

_BASELINES: dict[str, Callable[[], EvictionPolicy]] = {
    "full": FullPolicy,
    "random": RandomPolicy,
    "uniform": UniformPolicy,
    "sinks+uniform": SinksUniformPolicy,
    "fifo": FifoPolicy,
    "lru": LruPolicy,
    "streaming-llm": StreamingLlmPolicy,
    "h2o": H2oPolicy,
    "tova": TovaPolicy,
    "snapkv": SnapKvPolicy,
    "pyramidkv": PyramidKvPolicy,
    "adakv": AdaKvPolicy,
    "keydiff": KeyDiffPolicy,
}

POLICY_NAMES = ("audiokv", *_BASELINES)


def policy_by_name(
    name: str, slot_ms: int = WHISPER_SLOT_MS, profile: PolicyProfile = PROFILES["default"]
) -> EvictionPolicy:
    """Return a policy with its default parameters.

    Args:
        name: One of ``POLICY_NAMES``.
        slot_ms: Length of one slot of the model's cache; only AudioKV depends on it.
        profile: Kind of speech; only AudioKV depends on it.

    Raises:
        ConfigError: There is no policy of that name.
    """
    if name == "audiokv":
        return audiokv_policy(slot_ms, profile)
    if name in _BASELINES:
        return _BASELINES[name]()
    raise ConfigError(
        "unknown_policy",
        f"There is no eviction policy {name!r}.",
        f"Use one of {', '.join(POLICY_NAMES)}.",
    )


def audiokv_policy(slot_ms: int, profile: PolicyProfile) -> AudioKvPolicy:
    """Return the AudioKV policy for a model's slots and a kind of speech."""
    return AudioKvPolicy(
        guards=Guards(slot_ms, min_retention_ms=profile.min_retention_ms),
        languages=LanguageShares(profile.language_share),
    )
