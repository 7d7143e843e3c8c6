"""Named settings of the policy for kinds of speech."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.budget import BudgetPreset

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PolicyProfile:
    """Everything about the policy that depends on who speaks where.

    Attributes:
        preset: Shares of the pools.
        alpha: Weight of new attention, or None to follow the signal-to-noise estimate.
        median_slots: Width of the median smoother, odd.
        voice_weight: How much voice raises a score.
        burst_factor: How large a burst restarts a speaker's baseline.
        sharpness: Lambda of the eviction amount.
        language_share: Guaranteed share of each language.
        min_retention_ms: Slots younger than this are kept.
        pause_ms: Silence of this length is a pause.
    """

    preset: BudgetPreset = BudgetPreset.BALANCED
    alpha: float | None = None
    median_slots: int = 5
    voice_weight: float = 0.5
    burst_factor: float = 2.0
    sharpness: float = 0.2
    language_share: float = 0.2
    min_retention_ms: int = 200
    pause_ms: int = 200


PROFILES: Mapping[str, PolicyProfile] = {
    "default": PolicyProfile(),
    "clear": PolicyProfile(alpha=0.25),
    "noisy": PolicyProfile(alpha=0.45),
    "short": PolicyProfile(preset=BudgetPreset.SHORT),
    "long": PolicyProfile(preset=BudgetPreset.LONG),
    "meeting": PolicyProfile(sharpness=0.15),
    "conversation": PolicyProfile(sharpness=0.25),
    # G.711 is narrow and noisy, and two people take turns.
    "telephony": PolicyProfile(alpha=0.4, sharpness=0.25),
    # Repetitions look like spikes to a short median, and a block within a word is no pause.
    "stutter": PolicyProfile(median_slots=15, min_retention_ms=400, pause_ms=600),
}


def profile_by_name(name: str) -> PolicyProfile:
    """Return a profile.

    Raises:
        ConfigError: There is none of that name.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise ConfigError(
            "unknown_profile",
            f"There is no profile {name!r}.",
            f"Use one of {', '.join(PROFILES)}.",
        )
    return profile
