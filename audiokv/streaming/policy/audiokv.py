"""The AudioKV policy: speech decides what stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.guards import Guard, Guards
from audiokv.streaming.policy.language_shares import LanguageShares
from audiokv.streaming.policy.ordering import check_count
from audiokv.streaming.policy.weighted_cover import weighted_cover

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats, Indices, Mask
    from audiokv.streaming.policy.ledger import SlotLedger

_LEAST_SCORE = 1e-3  # a slot's time always counts for something
_OLDEST = 12  # memories after which audio is worth no less; it never comes to nothing


@dataclass(frozen=True, slots=True)
class AudioKvPolicy:
    """Covers the time that is held, densest where words are still to be found.

    What stays: guarded slots first (``Guards.binding``); then of every language its guaranteed
    share; the rest so that the density of slots over time follows

        ``score ** score_power``, times 1 where words are not committed yet, ``context_weight`` in
        the last ``context_ms`` of committed speech, ``committed_weight`` before it, which fades
        over ``memory_ms``.

    Strict orders were tried first and lose words: all committed audio first leaves the decoder
    with text whose audio is gone, and the lowest score first leaves holes as long as a word.

    After the AudioKV paper and design, departing from the paper in that it runs at any time of a
    stream, with committed words as the first criterion and coverage instead of a ranking.

    Attributes:
        guards: What must not leave.
        languages: Guaranteed shares.
        score_power: How much scores bend the density; 0 ignores them.
        committed_weight: What committed audio is worth, over 0.
        context_weight: What the committed audio just before the open words is worth, over 0.
        context_ms: How far that reaches back.
        memory_ms: Time before the context over which committed audio loses all but 1/e of what
            it is worth; None where age does not matter, as in a window that moves on by itself.
        max_merged_slots: How many slots one slot may stand for, see ``MergingPolicy``; 1 for none.

    Raises:
        ValueError: A parameter is out of range.
    """

    guards: Guards
    languages: LanguageShares = field(default_factory=LanguageShares)
    score_power: float = 0.5
    committed_weight: float = 0.2
    context_weight: float = 0.7
    context_ms: int = 1000
    memory_ms: int | None = None
    max_merged_slots: int = 8
    name: str = "audiokv"

    def __post_init__(self) -> None:
        """Refuse weights that cover nothing."""
        if min(self.committed_weight, self.context_weight) <= 0:
            raise ValueError("the weights of committed audio must be over 0")
        if self.score_power < 0 or self.context_ms < 0 or self.max_merged_slots < 1:
            raise ValueError("power and context must be at least 0, merged slots at least 1")
        if self.memory_ms is not None and self.memory_ms < 1:
            raise ValueError("the memory must be at least 1 ms")

    def choose(self, ledger: SlotLedger, count: int) -> Indices:
        """Return the rows that do not belong to what stays."""
        check_count(count, ledger.held)
        n_keep = ledger.held - count
        guarded = np.flatnonzero(self.guards.binding(ledger, n_keep) != Guard.NONE)
        stays = np.zeros(ledger.held, np.bool_)
        stays[guarded[:n_keep]] = True  # only a prompt can be too long: its beginning counts
        free = np.flatnonzero(~stays)
        n_free = n_keep - np.count_nonzero(stays)
        stays[free[self._cover(ledger, free, int(n_free))]] = True
        return np.flatnonzero(~stays)

    def _cover(self, ledger: SlotLedger, rows: Indices, n_keep: int) -> Mask:
        """Say which of some rows stay, shape (len(rows),)."""
        start_ms, end_ms = ledger.start_ms[rows], ledger.end_ms[rows]
        weights, languages = self._weights(ledger)[rows], ledger.language[rows]
        stays = weighted_cover(start_ms, end_ms, weights, n_keep)
        for number, quota in self.languages.quotas(languages, stays).items():
            own = np.flatnonzero(languages == number)
            stays[own] = weighted_cover(start_ms[own], end_ms[own], weights[own], quota)
        return stays

    def _weights(self, ledger: SlotLedger) -> Floats:
        """Return what the time of each held slot is worth, shape (held,)."""
        weights = np.maximum(ledger.score, _LEAST_SCORE) ** self.score_power
        is_committed = ledger.is_committed
        until_ms = int(ledger.end_ms[is_committed].max(initial=0))
        is_context = is_committed & (ledger.end_ms > until_ms - self.context_ms)
        weights[is_committed] *= self.committed_weight
        weights[is_context] *= self.context_weight / self.committed_weight
        if self.memory_ms is not None:
            age_ms = until_ms - self.context_ms - ledger.end_ms[is_committed]
            weights[is_committed] *= np.exp(-np.clip(age_ms / self.memory_ms, 0, _OLDEST))
        return weights
