from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.echo_gate import ECHO_MS, HOLD_MS, EchoGate

FRAME = 160


def noise(levels: list[float], seed: int = 0) -> np.ndarray:
    """Return frames of noise, each of a root mean square."""
    rows = np.random.default_rng(seed).standard_normal((len(levels), FRAME))
    rows *= np.array(levels)[:, None] / np.sqrt(np.square(rows).mean(axis=1))[:, None]
    return rows.reshape(-1).astype(np.float32)


def heard(first: list[float], second: list[float]) -> list[list[int]]:
    """Return for each channel which frames are let through."""
    passed = EchoGate(2).push([noise(first), noise(second, 1)])
    return [np.flatnonzero(rows.reshape(-1, FRAME).any(axis=1)).tolist() for rows in passed]


def test_what_is_22_db_softer_than_the_other_side_is_muted() -> None:
    assert heard([0.2] * 5, [0.0159] * 5) == [[0, 1, 2, 3, 4], []]
    assert heard([0.2] * 5, [0.0161] * 5) == [[0, 1, 2, 3, 4]] * 2


def test_an_echo_may_come_later_than_the_voice() -> None:
    n_late = ECHO_MS // 10
    voice = [0.2] + [0.0] * (n_late + 1)
    assert heard(voice, [0.0] * n_late + [0.01, 0.0])[1] == []
    assert heard(voice, [0.0] * (n_late + 1) + [0.01])[1] == [n_late + 1]


def test_a_voice_is_let_through_to_its_weak_end() -> None:
    n_held = HOLD_MS // 10
    _, second = heard([0.2] * (n_held + 4), [0.0, 0.1] + [0.01] * (n_held + 2))
    assert second == [1, *range(2, n_held + 2)]


def test_hiss_is_no_voice_whose_end_is_let_through() -> None:
    assert heard([0.0, 0.2, 0.2], [0.0029, 0.01, 0.01])[1] == [0]
    assert heard([0.0, 0.2, 0.2], [0.0031, 0.01, 0.01])[1] == [0, 1, 2]


def test_beside_a_silent_side_nothing_is_muted() -> None:
    assert heard([0.0029] * 3, [0.0001] * 3)[1] == [0, 1, 2]
    assert heard([0.0031] * 3, [0.0001] * 3)[1] == []


def test_one_channel_alone_is_untouched() -> None:
    only = noise([0.2, 0.001, 0.0, 0.1])
    (passed,) = EchoGate(1).push([only])
    assert passed.tolist() == only.tolist()


def test_the_callers_samples_stay_as_they_were() -> None:
    echo = noise([0.001] * 2)
    before = echo.copy()
    EchoGate(2).push([noise([0.2] * 2), echo])
    assert echo.tolist() == before.tolist()


@pytest.mark.parametrize("n_channels", [1, 2])
def test_nothing_is_made_of_nothing(n_channels: int) -> None:
    empty = [np.zeros(0, np.float32)] * n_channels
    assert [rows.size for rows in EchoGate(n_channels).push(empty)] == [0] * n_channels


@given(
    st.lists(st.tuples(*[st.sampled_from([0.0, 0.001, 0.01, 0.2])] * 2), max_size=60),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_it_does_not_matter_how_the_audio_is_cut(
    levels: list[tuple[float, float]], cuts: list[int]
) -> None:
    channels = [noise([pair[n] for pair in levels], n) for n in range(2)]
    whole = EchoGate(2).push(channels)
    gate = EchoGate(2)
    edges = [0, *sorted(min(cut, len(levels)) for cut in cuts), len(levels)]
    parts = [
        gate.push([rows[FRAME * a : FRAME * b] for rows in channels]) for a, b in pairwise(edges)
    ]
    for n in range(2):
        assert np.concatenate([part[n] for part in parts]).tolist() == whole[n].tolist()
