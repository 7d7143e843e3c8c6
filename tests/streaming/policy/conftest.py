"""Ledgers in the state of a stream some way in."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pytest
from hypothesis import settings

from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Pool, SlotMarks

SLOT_MS = 20

# A busy machine must not fail a test: no test here measures time.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")


class LedgerBuilder(Protocol):
    """Builds a random ledger; equal arguments give equal ledgers."""

    def __call__(
        self, n_slots: int, seed: int = 0, *, heads: tuple[int, int] | None = None
    ) -> SlotLedger: ...


def _random_ledger(
    n_slots: int, seed: int = 0, *, heads: tuple[int, int] | None = None
) -> SlotLedger:
    rng = np.random.default_rng(seed)
    ledger = SlotLedger(
        n_sinks=int(rng.integers(0, 5)),
        window_probes=3,
        heads=HeadRecord(*heads) if heads else None,
    )
    n_prompt = int(rng.integers(0, 3)) if n_slots > 3 else 0
    ledger.append([SlotMarks(0, 0, is_prompt=True)] * n_prompt)
    n_audio = n_slots - n_prompt
    n_late = int(rng.integers(0, 4)) if n_audio > 8 else 0
    marks = [
        SlotMarks(
            place * SLOT_MS,
            (place + 1) * SLOT_MS,
            is_voice=bool(rng.random() < 0.7),
            is_boundary=bool(rng.random() < 0.1),
            speaker=("ann", "bob", None)[int(rng.integers(3))],
            language=("en", "de", None)[int(rng.integers(3))],
            prior=float(rng.uniform(0.5, 2.0)),
        )
        for place in range(n_audio)
    ]
    ledger.append(marks[: n_audio - n_late])
    for _ in range(int(rng.integers(0, 4))):
        weights = rng.random(ledger.held) ** 3
        if ledger.heads is not None:
            by_head = rng.random(ledger.heads.importance.shape) ** 3
            ledger.heads.observe(by_head, ~ledger.attention.is_observed, 0.3)
        ledger.attention.observe(weights, 0.3)
    ledger.append(marks[n_audio - n_late :])
    if n_slots:
        ledger.attention.observe_keys(rng.uniform(-1, 1, ledger.held))
        ledger.set_scores(rng.random(ledger.held))
        ledger.mark_segment_end(int(rng.integers(n_audio * SLOT_MS + 1)))
        ledger.commit_until(int(rng.integers(n_audio * SLOT_MS + 1)))
        buffered = np.flatnonzero(ledger.pool == Pool.BUFFER)
        ledger.promote(buffered[: int(rng.integers(len(buffered) + 1))])
    return ledger


@pytest.fixture(scope="session")
def build_ledger() -> LedgerBuilder:
    """Builder of random ledgers of 20 ms slots."""
    return _random_ledger
