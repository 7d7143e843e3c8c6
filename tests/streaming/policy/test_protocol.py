from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.protocol import HeadwisePolicy
from audiokv.streaming.policy.registry import POLICY_NAMES, policy_by_name
from audiokv.streaming.policy.scoring import Scorer
from audiokv.streaming.policy.smoothing import MedianTrendSmoother, NoSmoother, SpectralSmoother

if TYPE_CHECKING:
    from audiokv.streaming.policy.protocol import Smoother
    from tests.streaming.policy.conftest import LedgerBuilder

SMOOTHERS: tuple[Smoother, ...] = (
    NoSmoother(),
    MedianTrendSmoother(),
    MedianTrendSmoother(15),
    SpectralSmoother(counts_dc=False),
    SpectralSmoother(counts_dc=True),
)


@pytest.mark.parametrize("name", POLICY_NAMES)
@pytest.mark.parametrize("smoother", SMOOTHERS, ids=lambda smoother: repr(smoother)[:40])
@given(size=st.tuples(st.integers(0, 70), st.integers(0, 10**6)), data=st.data())
def test_every_policy_keeps_the_contract_with_every_smoother(
    build_ledger: LedgerBuilder,
    name: str,
    smoother: Smoother,
    size: tuple[int, int],
    data: st.DataObject,
) -> None:
    n_slots, seed = size
    policy = policy_by_name(name)
    ledger = build_ledger(n_slots, seed, heads=(2, 2) if seed % 2 else None)
    scorer = Scorer(smoother)
    scorer.learn(ledger)
    ledger.set_scores(scorer.score(ledger))
    count = data.draw(st.integers(0, n_slots))
    chosen = policy.choose(ledger, count)
    assert len(chosen) == (0 if name == "full" else count)
    assert (np.diff(chosen) > 0).all()
    assert not len(chosen) or (chosen[0] >= 0 and chosen[-1] < n_slots)
    assert np.array_equal(chosen, policy.choose(ledger, count))
    assert ledger.held == n_slots


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_policy_refuses_counts_out_of_range(build_ledger: LedgerBuilder, name: str) -> None:
    ledger = build_ledger(20, 1)
    for count in (-1, 21):
        with pytest.raises(ValueError, match="of 20 slots"):
            policy_by_name(name).choose(ledger, count)


def test_policies_that_can_differ_by_head_say_so() -> None:
    headwise = {name for name in POLICY_NAMES if isinstance(policy_by_name(name), HeadwisePolicy)}
    assert headwise == {"pyramidkv", "adakv"}
