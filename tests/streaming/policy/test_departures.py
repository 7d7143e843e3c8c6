from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.departures import CHOSEN, DepartureTally, Standing
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Pool, Reason, SlotMarks

slots = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20)


@given(slots, st.integers(0, 20), st.sampled_from(Reason))
def test_every_slot_is_counted_once_under_the_first_standing_that_holds(
    made: list[tuple[bool, bool]], n_committed: int, reason: Reason
) -> None:
    ledger = SlotLedger(n_sinks=0)
    ledger.append(
        [SlotMarks(20 * i, 20 * i + 20, is_voice=voiced) for i, (voiced, _) in enumerate(made)]
    )
    ledger.commit_until(20 * n_committed)
    leaves = np.array([goes for _, goes in made])
    tally = DepartureTally()
    tally.count(ledger, leaves, reason)
    rows = [i for i, (_, goes) in enumerate(made) if goes]
    assert tally.left()[reason, Pool.BUFFER] == sum(tally.left().values()) == len(rows)
    is_chosen = reason in CHOSEN
    open_rows = [i for i in rows if i >= n_committed]
    n_speech = sum(made[i][0] for i in open_rows)
    assert tally.chosen() == {
        Standing.COMMITTED: is_chosen * (len(rows) - len(open_rows)),
        Standing.SILENCE: is_chosen * (len(open_rows) - n_speech),
        Standing.SPEECH: is_chosen * n_speech,
    }


@pytest.mark.parametrize("pool", [Pool.BUFFER, Pool.RESERVE])
def test_pools_are_told_apart_and_counts_grow(pool: Pool) -> None:
    ledger = SlotLedger(n_sinks=0)
    ledger.append([SlotMarks(0, 20, is_prompt=pool is Pool.RESERVE), SlotMarks(20, 40)])
    tally = DepartureTally()
    for _ in range(2):
        tally.count(ledger, np.array([True, False]), Reason.AHEAD)
    assert tally.left()[Reason.AHEAD, pool] == 2
    assert sum(tally.left().values()) == sum(tally.chosen().values()) == 2


def test_the_ledger_counts_what_leaves_it() -> None:
    ledger = SlotLedger(n_sinks=0)
    ledger.append([SlotMarks(20 * i, 20 * i + 20, is_voice=i > 0) for i in range(5)])
    ledger.evict(np.array([0, 3]), Reason.FORCED)
    ledger.evict(np.array([0]), Reason.EXPIRED)
    assert ledger.counts().chosen == {
        Standing.COMMITTED: 0,
        Standing.SILENCE: 1,
        Standing.SPEECH: 1,
    }
