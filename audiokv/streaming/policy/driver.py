"""What a model loop calls: it keeps the ledger, and says what to drop and when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.arrays import NO_SLOTS, Floats, Indices
from audiokv.streaming.policy.guards import Guard
from audiokv.streaming.policy.marks import Reason
from audiokv.streaming.policy.pools import PoolKeeper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.policy.budget import Budget
    from audiokv.streaming.policy.eviction_amount import EvictionAmount
    from audiokv.streaming.policy.guards import Guards
    from audiokv.streaming.policy.ledger import SlotLedger
    from audiokv.streaming.policy.marks import SlotMarks
    from audiokv.streaming.policy.prefetch import Prefetch
    from audiokv.streaming.policy.protocol import EvictionPolicy
    from audiokv.streaming.policy.rhythm import RhythmPredictor
    from audiokv.streaming.policy.scoring import Scorer

REMEMBERED_STEPS = 16


@dataclass(frozen=True, slots=True, eq=False)
class EvictionPlan:
    """What should leave now; false in a condition when nothing should.

    Attributes:
        indices: Rows to drop, rising.
        held: Slots held when it was made; it is void once that changes.
        reason: What it is for.
    """

    indices: Indices
    held: int
    reason: Reason

    def __bool__(self) -> bool:
        """Whether anything leaves."""
        return len(self.indices) > 0


@dataclass(frozen=True, slots=True)
class EvictionCounts:
    """How often room was made, in evictions (not slots).

    Attributes:
        n_hot: On the hot path, because a step went over the budget.
        n_between_steps: Ahead of need, while somebody spoke.
        n_in_pauses: Ahead of need, in a pause.
    """

    n_hot: int = 0
    n_between_steps: int = 0
    n_in_pauses: int = 0


@dataclass(frozen=True, slots=True)
class DriverParts:
    """What a driver is made of; ``assembly.open_driver`` fills it in.

    Attributes:
        ledger: Empty, or describing what the cache holds.
        policy: Chooses what leaves.
        budget: What may be held.
        scorer: Scores slots before each choice, for the policies that go by scores.
        guards: What must not leave ahead of need.
        amount: How much leaves at a time.
        prefetch: How much room to make ahead of need.
        rhythm: Learns the pauses.
    """

    ledger: SlotLedger
    policy: EvictionPolicy
    budget: Budget
    scorer: Scorer
    guards: Guards
    amount: EvictionAmount
    prefetch: Prefetch
    rhythm: RhythmPredictor


class PolicyDriver:
    """Drives a policy through a stream.

    One step of the loop: ``append`` what the cache takes in; ``plan``, and ``apply`` it to ledger
    and cache before the model runs, which holds the budget; after the model ran, ``observe`` and
    ``commit_until``; once the captions are out, ``settle``, then ``plan_ahead`` and ``apply``,
    which makes room so that the next ``plan`` is empty. A loop that leaves out the last part is
    still correct, only slower at times.

    Args:
        parts: Its parts; ledger, scorer and rhythm belong to this driver alone.
    """

    def __init__(self, parts: DriverParts) -> None:
        self.ledger = parts.ledger
        self.policy = parts.policy
        self.budget = parts.budget
        self.rhythm = parts.rhythm
        self._scorer = parts.scorer
        self._guards = parts.guards
        self._amount = parts.amount
        self._prefetch = parts.prefetch
        self._pools = PoolKeeper(parts.budget, parts.guards.min_retention_ms)
        self._steps: deque[int] = deque(maxlen=REMEMBERED_STEPS)
        self._counts = EvictionCounts()

    @property
    def counts(self) -> EvictionCounts:
        """How often room was made, and when."""
        return self._counts

    def append(self, marks: Sequence[SlotMarks]) -> None:
        """Take in the slots of one step, in time order."""
        is_first = not self.ledger.held
        self.ledger.append(marks)
        n_audio = 0
        for mark in marks:
            if mark.is_prompt:
                continue
            n_audio += 1
            self.rhythm.hear(is_voice=mark.is_voice)
            if mark.power is not None:
                self._scorer.rate.snr.hear(mark.power, is_voice=mark.is_voice)
        # What fills an empty cache says nothing about the steps to come.
        if n_audio and not is_first:
            self._steps.append(n_audio)

    def observe(self, attention: Floats, by_head: Floats | None = None) -> None:
        """Take in what the probe saw.

        Args:
            attention: Attention each held slot received, shape (held,).
            by_head: The same per layer and head, shape (layers, heads, held), where the ledger
                keeps a record per head.

        Raises:
            ValueError: A wrong shape, values that are negative or not finite, or weights per head
                that the ledger has no record for.
        """
        alpha = self._scorer.rate.alpha
        record = self.ledger.attention
        is_first = ~record.is_observed
        if by_head is not None and self.ledger.heads is None:
            raise ValueError("this ledger keeps no record per head")
        record.observe(attention, alpha)
        if by_head is not None and self.ledger.heads is not None:
            self.ledger.heads.observe(by_head, is_first, alpha)
        self._scorer.learn(self.ledger)

    def commit_until(self, at_ms: int) -> None:
        """Take in that all words up to ``at_ms`` are committed."""
        self.ledger.commit_until(at_ms)

    def close_segment(self, at_ms: int) -> None:
        """Take in that a segment ended at ``at_ms``; its last slot is guarded from now on."""
        self.ledger.mark_segment_end(at_ms)

    def settle(self) -> Indices:
        """Bring the pools back to their shares.

        Returns:
            Rows that joined the base pool, rising: the cache restores them to full precision.
        """
        released = self._pools.released_ends(self.ledger)
        self.ledger.release_segment_ends(released)
        promoted = self._pools.promotions(self.ledger)
        self.ledger.promote(promoted)
        return np.union1d(promoted, released)

    def share_silence(self) -> Indices:
        """Let runs of silence past the minimum retention share a slot.

        Returns:
            Rows that stay: what the cache must keep. The multiplicities are in the ledger.
        """
        return self.ledger.share_silence(self.ledger.now_ms - self._guards.min_retention_ms)

    def plan(self) -> EvictionPlan:
        """Say what must leave before the model may run; empty while the budget is kept."""
        over = self.ledger.held - self.budget.total_slots
        if over <= 0:
            return EvictionPlan(NO_SLOTS, self.ledger.held, Reason.FORCED)
        return self._choose(over, Reason.FORCED)

    def plan_ahead(self) -> EvictionPlan:
        """Say what should leave while there is time: after a step's captions are out.

        While somebody speaks only as much leaves as the next step needs, so that the budget is
        used in full; in a pause the eviction amount may leave too. Guarded slots never leave
        ahead of need.
        """
        held, total = self.ledger.held, self.budget.total_slots
        step_slots = max(self._steps, default=0)
        wanted = self._prefetch.free_slots(self.rhythm, step_slots, total)
        missing = wanted - (total - held)
        if self.rhythm.is_pause:
            above = held - self.budget.high_water_slots
            missing = max(missing, min(self._amount_slots(), above))
        if missing <= 0:
            return EvictionPlan(NO_SLOTS, held, Reason.AHEAD)
        return self._choose(min(missing, self._n_unguarded(held - missing)), Reason.AHEAD)

    def apply(self, plan: EvictionPlan) -> Indices:
        """Carry out a plan in the ledger.

        Returns:
            Rows that stay, in their old numbers and rising: what the cache must keep.

        Raises:
            ValueError: The ledger has changed since the plan was made.
        """
        if plan.held != self.ledger.held:
            raise ValueError(f"the plan was made for {plan.held} slots, not {self.ledger.held}")
        if plan:
            self._count(plan.reason)
        return self.ledger.evict(plan.indices, plan.reason)

    def _amount_slots(self) -> int:
        return self._amount.slots(self.ledger.attention.importance)

    def _n_unguarded(self, n_keep: int) -> int:
        return int(np.count_nonzero(self._guards.binding(self.ledger, n_keep) == Guard.NONE))

    def _choose(self, count: int, reason: Reason) -> EvictionPlan:
        self.ledger.set_scores(self._scorer.score(self.ledger))
        return EvictionPlan(self.policy.choose(self.ledger, count), self.ledger.held, reason)

    def _count(self, reason: Reason) -> None:
        counts = self._counts
        is_hot = reason == Reason.FORCED
        is_pause = self.rhythm.is_pause and not is_hot
        self._counts = EvictionCounts(
            n_hot=counts.n_hot + is_hot,
            n_between_steps=counts.n_between_steps + (not is_hot and not is_pause),
            n_in_pauses=counts.n_in_pauses + is_pause,
        )
