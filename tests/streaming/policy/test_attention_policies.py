from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.attention_policies import (
    H2oPolicy,
    SnapKvPolicy,
    TovaPolicy,
    average_pooled,
    newest,
)
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks


def stream(*probes: list[float], window_probes: int = 32, n_new: int = 0) -> SlotLedger:
    ledger = SlotLedger(window_probes=window_probes)
    n_slots = len(probes[0])
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_slots)])
    for probe in probes:
        ledger.attention.observe(np.array(probe), 0.3)
    last = n_slots + n_new
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_slots, last)])
    return ledger


def test_h2o_keeps_heavy_hitters_and_recent_halves() -> None:
    ledger = stream([0.5, 0.1, 0.2, 0.3, 0.05, 0.01], [0.0, 0.4, 0.0, 0.0, 0.0, 0.0])
    # Two recent (4, 5) stay; of the rest the accumulated 0.5 and 0.5 win over 0.2 and 0.3.
    assert H2oPolicy().choose(ledger, 2).tolist() == [2, 3]


def test_h2os_recent_share_counts() -> None:
    ledger = stream([0.5, 0.1, 0.2, 0.3, 0.05, 0.01])
    assert H2oPolicy(recent_share=0.0).choose(ledger, 2).tolist() == [4, 5]
    assert H2oPolicy(recent_share=1.0).choose(ledger, 2).tolist() == [0, 1]


def test_tova_goes_by_the_latest_probe_only() -> None:
    ledger = stream([0.9, 0.0, 0.1], [0.1, 0.2, 0.7])
    assert TovaPolicy().choose(ledger, 1).tolist() == [0]
    assert TovaPolicy().choose(ledger, 2).tolist() == [0, 1]


@pytest.mark.parametrize("policy", [H2oPolicy(recent_share=0.0), TovaPolicy(), SnapKvPolicy(0)])
def test_slots_no_probe_has_seen_stay_before_any_that_has(
    policy: H2oPolicy | TovaPolicy | SnapKvPolicy,
) -> None:
    ledger = stream([0.5, 0.2, 0.3], n_new=2)
    assert policy.choose(ledger, 3).tolist() == [0, 1, 2]


def test_snapkv_goes_by_the_window_of_probes() -> None:
    probes = [[0.9, 0.0, 0.0], [0.1, 0.2, 0.7], [0.1, 0.4, 0.5]]
    policy = SnapKvPolicy(window_slots=0, kernel_slots=1)
    assert policy.choose(stream(*probes, window_probes=2), 1).tolist() == [0]
    assert policy.choose(stream(*probes, window_probes=3), 1).tolist() == [1]


def test_snapkv_pools_over_neighbours() -> None:
    ledger = stream([0.0, 0.9, 0.0, 0.3, 0.3, 0.0, 0.0])
    assert SnapKvPolicy(0, 1).choose(ledger, 4).tolist() == [0, 2, 5, 6]
    assert SnapKvPolicy(0, 3).choose(ledger, 4).tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize(("window_slots", "stays"), [(0, []), (2, [18, 19]), (9, [17, 18, 19])])
def test_snapkvs_window_stays_up_to_a_quarter(window_slots: int, stays: list[int]) -> None:
    ledger = stream([1.0 - 0.01 * at for at in range(20)])
    gone = SnapKvPolicy(window_slots, 1).choose(ledger, 8)
    assert np.setdiff1d(range(12, 20), gone).tolist() == stays


@pytest.mark.parametrize("kernel_slots", [0, 4])
def test_a_kernel_without_a_centre_is_refused(kernel_slots: int) -> None:
    with pytest.raises(ValueError, match="must be odd"):
        SnapKvPolicy(kernel_slots=kernel_slots)


def test_newest_of_none_is_none() -> None:
    ledger = stream([0.1, 0.2, 0.3])
    assert newest(ledger, 0).tolist() == [False, False, False]
    assert newest(ledger, -1).tolist() == [False, False, False]
    assert newest(ledger, 2).tolist() == [False, True, True]


@given(st.lists(st.floats(0, 1), max_size=30), st.sampled_from([1, 3, 5, 7]))
def test_pooling_is_the_mean_of_the_neighbours(values: list[float], kernel_slots: int) -> None:
    reach = kernel_slots // 2
    expected = [np.mean(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))]
    rows = np.array([values, values[::-1]])
    assert average_pooled(rows, kernel_slots)[0] == pytest.approx(expected, abs=1e-12)
