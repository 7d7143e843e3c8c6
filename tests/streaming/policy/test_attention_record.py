from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.attention_record import AttentionRecord


def record_of(*probes: list[float], window_probes: int = 32, alpha: float = 0.3) -> AttentionRecord:
    record = AttentionRecord(window_probes)
    record.append(len(probes[0]))
    for probe in probes:
        record.observe(np.array(probe), alpha)
    return record


@pytest.mark.parametrize("alpha", [0.2, 0.5, 1.0])
def test_importance_accumulates_exponentially_from_the_first_probe(alpha: float) -> None:
    record = record_of([0.4, 0.0], [0.8, 0.5], alpha=alpha)
    assert record.importance == pytest.approx(
        [alpha * 0.8 + (1 - alpha) * 0.4, alpha * 0.5 + (1 - alpha) * 0.0]
    )


def test_a_slot_that_joins_later_takes_its_first_probe_whole() -> None:
    record = record_of([0.4])
    record.append(1)
    assert record.is_observed.tolist() == [True, False]
    record.observe(np.array([0.0, 0.6]), 0.25)
    assert record.importance == pytest.approx([0.3, 0.6])
    assert record.n_observed.tolist() == [2, 1]


def test_accumulated_and_latest_attention() -> None:
    record = record_of([0.4, 0.1], [0.2, 0.3])
    assert record.accumulated == pytest.approx([0.6, 0.4])
    assert record.latest == pytest.approx([0.2, 0.3])


def test_the_windowed_mean_forgets_what_leaves_the_window() -> None:
    probes = [[0.9, 0.0], [0.1, 0.2], [0.3, 0.4]]
    assert record_of(*probes, window_probes=2).windowed == pytest.approx([0.2, 0.3])
    assert record_of(*probes, window_probes=3).windowed == pytest.approx([1.3 / 3, 0.2])


def test_the_windowed_mean_counts_only_probes_that_saw_the_slot() -> None:
    record = record_of([0.4], window_probes=4)
    record.append(1)
    record.observe(np.array([0.4, 0.6]), 0.3)
    assert record.windowed == pytest.approx([0.4, 0.6])


def test_a_slot_is_used_by_a_probe_that_gives_it_an_even_share() -> None:
    record = record_of([0.5, 0.1], [0.2, 0.7], [0.2, 0.2])
    assert record.last_used.tolist() == [1, 2]
    record.append(1)
    assert record.last_used.tolist() == [1, 2, 3]


def test_key_similarity_is_kept() -> None:
    record = record_of([0.5, 0.1])
    record.observe_keys(np.array([0.9, -0.2]))
    record.append(1)
    assert record.key_similarity == pytest.approx([0.9, -0.2, 0.0])
    with pytest.raises(ValueError, match="for 3 slots"):
        record.observe_keys(np.zeros(2))


@pytest.mark.parametrize(
    "weights", [[0.1], [0.1, -0.1], [0.1, float("nan")], [float("inf"), 0.0], [[0.1, 0.1]]]
)
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    record = record_of([0.5, 0.1])
    with pytest.raises(ValueError, match="attention weights"):
        record.observe(np.array(weights), 0.3)
    assert record.n_probes == 1


def test_a_probe_of_no_slots_counts() -> None:
    record = AttentionRecord()
    record.append(0)
    record.observe(np.empty(0), 0.3)
    assert record.n_probes == 1
    assert len(record.windowed) == 0


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="0 probes"):
        AttentionRecord(0)


def test_absorbed_slots_add_their_attention() -> None:
    record = record_of([0.1, 0.2, 0.4])
    record.absorb(np.array([0, 0]), np.array([1, 2]))
    record.keep(np.array([0]))
    assert record.importance == pytest.approx([0.7])
    assert record.accumulated == pytest.approx([0.7])
    assert record.latest == pytest.approx([0.7])


@given(st.integers(1, 40), st.data())
def test_keeping_renumbers_every_statistic_alike(n_slots: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(n_slots)
    record = record_of(*rng.random((3, n_slots)).tolist())
    record.observe_keys(rng.random(n_slots))
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, n_slots - 1)))), np.intp)
    names = (
        "importance",
        "accumulated",
        "latest",
        "n_observed",
        "last_used",
        "key_similarity",
        "windowed",
    )
    before = {name: getattr(record, name)[kept].copy() for name in names}
    n_bytes = record.n_bytes
    record.keep(kept)
    for name, expected in before.items():
        assert np.array_equal(getattr(record, name), expected)
    assert record.n_bytes == n_bytes
