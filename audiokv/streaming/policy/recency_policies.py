"""Policies that go by time: FIFO, LRU, and sinks with a window (StreamingLLM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.marks import Keeping
from audiokv.streaming.policy.ordering import eviction_order, take

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Indices
    from audiokv.streaming.policy.ledger import SlotLedger


@dataclass(frozen=True, slots=True)
class FifoPolicy:
    """Evicts the oldest: a sliding window without sinks.

    The window attention that Xiao et al. 2023 (arXiv:2309.17453) show to collapse once the first
    positions leave. Departs in that a prompt, where there is one, stays.
    """

    name: str = "fifo"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the oldest rows, prompt last."""
        return take(eviction_order(ledger), count)


@dataclass(frozen=True, slots=True)
class LruPolicy:
    """Evicts what was least recently used.

    The classic page replacement rule (analysed by Mattson et al. 1970, "Evaluation techniques for
    storage hierarchies"). A key/value cache has no page accesses, so a slot counts as used by a
    probe that gives it at least an even share, 1/n; a new slot counts as used when it arrives.
    """

    name: str = "lru"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows whose last use lies furthest back, prompt last."""
        return take(eviction_order(ledger, ledger.attention.last_used), count)


@dataclass(frozen=True, slots=True)
class StreamingLlmPolicy:
    """Keeps the attention sinks and the most recent slots.

    StreamingLLM (Xiao et al. 2023, arXiv:2309.17453), with 4 sinks by default (set on the
    ledger). Departs in the positions: the paper counts them within the cache, here keys keep the
    position they arrived with.
    """

    name: str = "streaming-llm"

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the oldest rows, then sinks, then prompt."""
        is_sink = np.equal(ledger.keeping, Keeping.SINK)
        return take(eviction_order(ledger, is_sink), count)
