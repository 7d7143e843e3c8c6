"""Policies that look at nothing but position: full, random, uniform stride, sinks and uniform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.arrays import NO_SLOTS
from audiokv.streaming.policy.marks import Keeping
from audiokv.streaming.policy.ordering import check_count, eviction_order, take

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Ints, Mask
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class FullPolicy:
    """Keeps everything: the reference, without a bound."""

    name: str = "full"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return no rows, whatever the count."""
        check_count(count, ledger.held)
        return NO_SLOTS


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """Evicts uniformly at random; no paper, the floor any policy must clear.

    Attributes:
        seed: With the ledger's lengths it fixes every choice.
    """

    seed: int = 0
    name: str = "random"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return random audio rows, prompt last."""
        generator = np.random.default_rng((self.seed, ledger.seen, ledger.held))
        return take(eviction_order(ledger, generator.random(ledger.held)), count)


@dataclass(frozen=True, slots=True)
class UniformPolicy:
    """Keeps slots at an even stride over the time that is held; no paper.

    The stride is one of time, not of rows, so over a long stream old and new audio thin out alike
    instead of the old ever more.
    """

    name: str = "uniform"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows between the stride's points, prompt last."""
        audio = ledger.keeping != Keeping.PROMPT
        return take(_uniform_order(ledger, audio, count), count)


@dataclass(frozen=True, slots=True)
class SinksUniformPolicy:
    """Keeps the attention sinks and an even stride of the rest.

    The sinks are those of StreamingLLM (Xiao et al. 2023, arXiv:2309.17453); the stride in place
    of its window is ours, to tell the part of the sinks from that of recency.
    """

    name: str = "sinks+uniform"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows between the stride's points, then sinks, then prompt."""
        return take(_uniform_order(ledger, ledger.keeping < Keeping.SINK, count), count)


def _uniform_order(ledger: SlotLedger, thinned: Mask, count: int) -> Indices:
    """Order rows so that the first ``count`` leave an even cover of the thinned ones."""
    check_count(count, ledger.held)
    rows = np.flatnonzero(thinned)
    n_keep = max(0, len(rows) - count)
    tier: Floats = np.full(ledger.held, 2.0)  # not thinned: only if nothing else is left
    tier[rows] = _stride_tier(ledger.start_ms[rows], n_keep)
    return eviction_order(ledger, tier)


def _stride_tier(start_ms: Ints, n_keep: int) -> Floats:
    """Return 1 for the slots on the stride, and values below for the rest.

    The quota of kept slots grows evenly with time, and a slot is kept whenever the quota allows
    one more. What a hole in time leaves unused goes to the slots after it, what the end leaves
    unused is spread evenly.
    """
    n_slots = len(start_ms)
    tier: Floats = np.zeros(n_slots)
    if not n_keep:
        return tier
    since_ms = start_ms - start_ms[0]
    whole = max(1, int(since_ms[-1]) * n_slots)
    quota = 1 + since_ms * (n_keep * (n_slots - 1)) // whole
    place = np.arange(n_slots)
    # One slot adds at most one: n_kept[i] = min(n_kept[i-1] + 1, quota[i]), in closed form.
    n_kept = np.minimum(place + 1, place + np.minimum.accumulate(quota - place))
    on_stride = np.diff(n_kept, prepend=0) > 0
    tier[on_stride] = 1.0
    spare = np.flatnonzero(~on_stride)
    n_missing = n_keep - int(n_kept[-1])
    if n_missing > 0:
        tier[spare[(np.arange(n_missing) * len(spare)) // n_missing]] = 0.5
    return tier
