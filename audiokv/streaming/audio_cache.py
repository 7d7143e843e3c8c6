"""How large a stream's audio cache may grow, and what it holds at the moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.streaming.policy.departures import Standing
from audiokv.streaming.policy.marks import Pool, Reason
from audiokv.streaming.policy.registry import policy_by_name

if TYPE_CHECKING:
    from audiokv.streaming.policy.dialect import DialectPrior
    from audiokv.streaming.policy.driver import PolicyDriver


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """The bound of a stream's audio cache.

    Attributes:
        budget_slots: Audio slots a stream may hold, or None for all of its window.
        policy: Name of the policy that chooses what leaves.
        prior: Dialect prior on the scores of slots, or None.

    Raises:
        ConfigError: There is no policy of that name.
        ValueError: The budget is below one slot.
    """

    budget_slots: int | None = None
    policy: str = "audiokv"
    prior: DialectPrior | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be kept."""
        policy_by_name(self.policy)
        if self.budget_slots is not None and self.budget_slots < 1:
            raise ValueError(f"a budget of {self.budget_slots} slots holds nothing")


@dataclass(frozen=True, slots=True)
class PoolSlots:
    """Slots held in each pool."""

    base: int
    buffer: int
    reserve: int


@dataclass(frozen=True, slots=True)
class Evictions:
    """How often room was made, in evictions (not slots).

    Attributes:
        hot: On the way to a caption.
        between_steps: After a step's captions, while somebody spoke.
        in_pauses: After a step's captions, in a pause.
    """

    hot: int
    between_steps: int
    in_pauses: int


@dataclass(frozen=True, slots=True)
class LeftSlots:
    """Slots that left since the stream began, by reason.

    Attributes:
        forced: Over the budget on the way to a caption.
        ahead: To make room before it was needed.
        expired: Their audio is no longer part of the recogniser's window.
        shared: Silence that shares another slot.
    """

    forced: int
    ahead: int
    expired: int
    shared: int


@dataclass(frozen=True, slots=True)
class ChosenSlots:
    """What the forced and those ahead of need were when the policy chose them.

    Attributes:
        committed: Their words were final.
        silence: Nobody spoke in them.
        speech: Their words could still change.
    """

    committed: int
    silence: int
    speech: int


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """The state of one stream's audio cache; field names are the names on the wire.

    Attributes:
        policy: Name of the policy.
        seen_slots: Slots since the stream began.
        held_slots: Slots held now.
        budget_slots: Slots that may be held.
        pools: Held slots by pool; they sum to ``held_slots``.
        n_evictions: How often room was made.
        held_bytes: Bytes of the keys and values of the held slots.
        left_slots: Why slots left; sums to ``seen_slots - held_slots``.
        chosen_slots: What they were, where the policy had a choice; sums to the forced and those
            ahead of need.
    """

    policy: str
    seen_slots: int
    held_slots: int
    budget_slots: int
    pools: PoolSlots
    n_evictions: Evictions
    held_bytes: int
    left_slots: LeftSlots
    chosen_slots: ChosenSlots


def count_cache(driver: PolicyDriver, slot_bytes: int) -> CacheCounters:
    """Return the counters of a driver's cache as they stand.

    Args:
        driver: Drives the policy of the stream.
        slot_bytes: Bytes of the keys and values of one slot in all layers.
    """
    ledger, counts = driver.ledger.counts(), driver.counts
    pools, chosen = ledger.held_by_pool, ledger.chosen
    left = {why: sum(ledger.evicted[why, pool] for pool in Pool) for why in Reason}
    return CacheCounters(
        policy=driver.policy.name,
        seen_slots=ledger.seen,
        held_slots=ledger.held,
        budget_slots=driver.budget.total_slots,
        pools=PoolSlots(pools[Pool.BASE], pools[Pool.BUFFER], pools[Pool.RESERVE]),
        n_evictions=Evictions(counts.n_hot, counts.n_between_steps, counts.n_in_pauses),
        held_bytes=ledger.held * slot_bytes,
        left_slots=LeftSlots(
            forced=left[Reason.FORCED],
            ahead=left[Reason.AHEAD],
            expired=left[Reason.EXPIRED],
            shared=left[Reason.SHARED],
        ),
        chosen_slots=ChosenSlots(
            committed=chosen[Standing.COMMITTED],
            silence=chosen[Standing.SILENCE],
            speech=chosen[Standing.SPEECH],
        ),
    )
