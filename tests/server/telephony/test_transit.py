from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.transit import WINDOW_MS, TransitFloor


def test_nothing_is_known_before_the_first_packet() -> None:
    assert TransitFloor().least_ms is None


def test_the_least_delay_counts() -> None:
    floor = TransitFloor()
    for arrived_ms, media_ms in ((100, 40), (125, 60), (135, 80), (1_190, 1_100)):
        floor.note(arrived_ms, media_ms)
    assert floor.least_ms == 55


def test_delays_of_long_ago_do_not_count() -> None:
    floor = TransitFloor()
    floor.note(0, 0)
    floor.note(WINDOW_MS - 1, WINDOW_MS - 50)
    assert floor.least_ms == 0
    floor.note(WINDOW_MS, WINDOW_MS - 50)
    assert floor.least_ms == 49


def test_media_that_moves_earlier_came_later() -> None:
    floor = TransitFloor()
    floor.note(100, 40)
    floor.shift(15)
    assert floor.least_ms == 75


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 900)), min_size=1, max_size=200))
def test_it_is_the_least_of_the_window_whatever_comes(steps: list[tuple[float, float]]) -> None:
    floor = TransitFloor()
    arrived_ms = 0.0
    noted: list[tuple[int, float]] = []
    for step_ms, media_ms in steps:
        arrived_ms += step_ms
        floor.note(arrived_ms, media_ms)
        noted.append((int(arrived_ms // 1000), arrived_ms - media_ms))
    late = [delay for second, delay in noted if noted[-1][0] - second < WINDOW_MS / 1000]
    assert floor.least_ms == pytest.approx(min(late))
