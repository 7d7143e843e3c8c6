"""Putting a driver together from a policy's name, a budget and a profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audiokv.streaming.policy.budget import Budget
from audiokv.streaming.policy.driver import DriverParts, PolicyDriver
from audiokv.streaming.policy.eviction_amount import EvictionAmount
from audiokv.streaming.policy.guards import Guards
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.prefetch import RhythmPrefetch
from audiokv.streaming.policy.profiles import PROFILES, PolicyProfile
from audiokv.streaming.policy.registry import policy_by_name
from audiokv.streaming.policy.rhythm import RhythmPredictor
from audiokv.streaming.policy.scoring import Scorer
from audiokv.streaming.policy.smoothing import MedianTrendSmoother
from audiokv.streaming.policy.snr import AlphaRule
from audiokv.streaming.policy.speaker_baseline import SpeakerBaselines

if TYPE_CHECKING:
    from audiokv.streaming.policy.prefetch import Prefetch
    from audiokv.streaming.policy.protocol import EvictionPolicy, Smoother


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """What else can be set about a driver.

    Attributes:
        profile: Kind of speech.
        high_water: Share of the budget above which pauses are used to make room.
        smoother: In place of the profile's median and trend.
        prefetch: How much room to make ahead of need.
    """

    profile: PolicyProfile = PROFILES["default"]
    high_water: float = 0.9
    smoother: Smoother | None = None
    prefetch: Prefetch = field(default_factory=RhythmPrefetch)


DEFAULT_OPTIONS = DriverOptions()


def open_driver(
    policy: str | EvictionPolicy,
    total_slots: int,
    slot_ms: int,
    options: DriverOptions = DEFAULT_OPTIONS,
    ledger: SlotLedger | None = None,
) -> PolicyDriver:
    """Return a driver for one stream.

    Args:
        policy: Name of a policy, or one with other parameters.
        total_slots: Slots the stream may hold, prompt and sinks included.
        slot_ms: Length of one slot of the model's cache.
        options: Everything else.
        ledger: An empty ledger with other parameters, such as a record per head.

    Raises:
        ConfigError: There is no policy of that name.
        ValueError: A number is out of range.
    """
    profile = options.profile
    return PolicyDriver(
        DriverParts(
            ledger=SlotLedger() if ledger is None else ledger,
            policy=policy_by_name(policy, slot_ms, profile) if isinstance(policy, str) else policy,
            budget=Budget(total_slots, profile.preset, options.high_water),
            scorer=Scorer(
                smoother=options.smoother or MedianTrendSmoother(profile.median_slots),
                baselines=SpeakerBaselines(profile.burst_factor),
                voice_weight=profile.voice_weight,
                rate=AlphaRule(profile.alpha),
            ),
            guards=Guards(slot_ms, min_retention_ms=profile.min_retention_ms),
            amount=EvictionAmount(sharpness=profile.sharpness),
            prefetch=options.prefetch,
            rhythm=RhythmPredictor(slot_ms, profile.pause_ms),
        )
    )
