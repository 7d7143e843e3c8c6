from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.loudness import LoudnessGate


def frames(*levels_db: float) -> np.ndarray:
    """Square waves of these levels, one frame each."""
    signs = np.tile([1.0, -1.0], 80)
    joined: np.ndarray = np.concatenate([signs * 10 ** (db / 20) for db in levels_db])
    return joined.astype(np.float32)


def test_what_is_far_below_the_loudest_is_not_voice() -> None:
    heard = LoudnessGate().push(frames(-50, -20, -45, -52, -20))
    assert heard.tolist() == [True, True, True, False, True]


def test_a_quiet_room_is_not_voice_and_silence_is_none() -> None:
    assert not LoudnessGate().push(frames(-62, -61)).any()
    assert not LoudnessGate().push(np.zeros(320, np.float32)).any()
    assert LoudnessGate().push(np.zeros(0, np.float32)).shape == (0,)


@pytest.mark.parametrize(("n_quiet", "is_voice"), [(100, False), (1_100, True)])
def test_a_loud_moment_is_forgotten(n_quiet: int, *, is_voice: bool) -> None:
    gate = LoudnessGate()
    gate.push(frames(-10))
    assert gate.push(frames(*[-45.0] * n_quiet))[-1] == is_voice


@given(st.lists(st.floats(-90, 0), min_size=1, max_size=20), st.integers(0, 20))
def test_any_chunking_gives_the_same(levels_db: list[float], cut: int) -> None:
    whole, gate = LoudnessGate().push(frames(*levels_db)), LoudnessGate()
    samples = frames(*levels_db)
    parts = [gate.push(samples[: cut * 160]), gate.push(samples[cut * 160 :])]
    assert np.concatenate(parts).tolist() == whole.tolist()
