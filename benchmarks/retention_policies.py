"""The policies that are compared, with their seeds, and AudioKV less one ingredient each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.whisper.audio_budget import LIVE_PREFETCH
from audiokv.streaming.policy.assembly import DriverOptions
from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.coverage_policies import RandomPolicy, UniformPolicy
from audiokv.streaming.policy.guards import Guards
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.ordering import eviction_order, take
from audiokv.streaming.policy.prefetch import NoPrefetch, RhythmPrefetch
from audiokv.streaming.policy.protocol import EvictionPolicy
from audiokv.streaming.policy.registry import POLICY_NAMES, audiokv_policy, policy_by_name
from audiokv.streaming.policy.smoothing import NoSmoother, SpectralSmoother

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.policy.arrays import Indices, Mask
    from audiokv.streaming.policy.ledger import SlotLedger

# What the live audio cache is opened with.
LIVE = DriverOptions(high_water=1.0, prefetch=LIVE_PREFETCH)
RANDOM = "random"
AUDIOKV = "audiokv"
ORACLE = "oracle"
MERGED_UNIFORM = "uniform+merged"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to choose what leaves.

    Attributes:
        name: What it is called in the tables.
        policy: Makes the policy from the length of a slot in ms.
        seed: Of a policy that draws lots.
        options: What else of the driver differs.
        needs_keys: Whether it goes by the keys.
    """

    name: str
    policy: Callable[[int], EvictionPolicy]
    seed: int = 0
    options: DriverOptions = LIVE
    needs_keys: bool = False


@dataclass(frozen=True, slots=True)
class OraclePolicy:
    """Keeps what received most attention in all; it is shown a whole decode of the full cache.

    No policy can know this ahead: a mark of what choosing well could gain.
    """

    name: str = ORACLE

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows with the least attention."""
        return take(eviction_order(ledger, ledger.attention.accumulated), count)


@dataclass(frozen=True, slots=True)
class MergedUniformPolicy(UniformPolicy):
    """Keeps an even stride, each slot the mean of those around it: mean-merging, nothing else.

    Attributes:
        max_merged_slots: Most slots that one may stand for.
    """

    max_merged_slots: int = 8
    name: str = MERGED_UNIFORM


class RankedAudioKvPolicy(AudioKvPolicy):
    """AudioKV that keeps what is worth most, wherever it lies, instead of covering the time."""

    __slots__ = ()

    def _cover(self, ledger: SlotLedger, rows: Indices, n_keep: int) -> Mask:
        order = np.argsort(self._weights(ledger)[rows], kind="stable")
        stays = np.zeros(len(rows), np.bool_)
        stays[order[len(rows) - n_keep :]] = True
        return stays


def variants(names: Sequence[str], n_seeds: int) -> list[Variant]:
    """Return the variants of these names, those that draw lots once for each seed.

    Raises:
        SystemExit: There is no such policy or ablation.
    """
    found: list[Variant] = []
    for name in names:
        if name == RANDOM:
            found += [_random(seed) for seed in range(n_seeds)]
        elif name in POLICY_NAMES:
            found.append(_named(name))
        elif name in ABLATIONS:
            found.append(_ablation(name))
        elif name == ORACLE:
            found.append(Variant(ORACLE, lambda _: OraclePolicy()))
        elif name == MERGED_UNIFORM:
            found.append(Variant(MERGED_UNIFORM, lambda _: MergedUniformPolicy()))
        else:
            known = ", ".join((*POLICY_NAMES, MERGED_UNIFORM, ORACLE, *ABLATIONS))
            raise SystemExit(f"There is no policy {name!r}. Use some of {known}.")
    return found


def _named(name: str) -> Variant:
    return Variant(
        name, lambda slot_ms: policy_by_name(name, slot_ms), needs_keys=name == "keydiff"
    )


def _random(seed: int) -> Variant:
    return Variant(RANDOM, lambda _: RandomPolicy(seed), seed)


def _ablation(name: str) -> Variant:
    change = POLICY_ABLATIONS.get(name, _with())
    options = DRIVER_ABLATIONS.get(name, LIVE)
    return Variant(
        name, lambda slot_ms: change(audiokv_policy(slot_ms, options.profile)), options=options
    )


Change = Callable[[AudioKvPolicy], EvictionPolicy]


def _with(**changes: object) -> Change:
    return lambda policy: replace(policy, **changes)  # type: ignore[arg-type]  # its own fields


def _ranked(policy: AudioKvPolicy) -> EvictionPolicy:
    own = {field.name: getattr(policy, field.name) for field in fields(policy)}
    return RankedAudioKvPolicy(**own)


def _without_guards(policy: AudioKvPolicy) -> EvictionPolicy:
    return replace(policy, guards=Guards(policy.guards.slot_ms, 0, 0, max_share=0.0))


# AudioKV with one ingredient taken away or put in another's place.
POLICY_ABLATIONS: dict[str, Change] = {
    "audiokv-no-merging": _with(max_merged_slots=1),
    "audiokv-no-coverage": _ranked,
    "audiokv-no-commitment": _with(committed_weight=1.0, context_weight=1.0),
    "audiokv-no-context": lambda policy: replace(policy, context_weight=policy.committed_weight),
    "audiokv-long-memory": _with(memory_ms=1_000_000_000),
    "audiokv-no-scores": _with(score_power=0.0),
    "audiokv-no-guards": _without_guards,
    "audiokv-no-languages": _with(languages=LanguageShares(0.0)),
}
DRIVER_ABLATIONS: dict[str, DriverOptions] = {
    "audiokv-no-smoothing": replace(LIVE, smoother=NoSmoother()),
    "audiokv-spectral": replace(LIVE, smoother=SpectralSmoother()),
    "audiokv-spectral-dc": replace(LIVE, smoother=SpectralSmoother(counts_dc=True)),
    "audiokv-no-voice": replace(LIVE, profile=replace(LIVE.profile, voice_weight=0.0)),
    "audiokv-fixed-alpha": replace(LIVE, profile=replace(LIVE.profile, alpha=0.3)),
    "audiokv-no-prefetch": replace(LIVE, prefetch=NoPrefetch()),
    "audiokv-rhythm-prefetch": replace(LIVE, prefetch=RhythmPrefetch()),
}
ABLATIONS = (*POLICY_ABLATIONS, *DRIVER_ABLATIONS)
