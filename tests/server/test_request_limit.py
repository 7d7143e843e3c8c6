from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.request_limit import RequestLimit
from tests.server.doubles import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.server.clock import Timer


async def test_a_burst_passes_and_then_only_the_rate() -> None:
    clock = ManualClock()
    limit = RequestLimit(clock, burst=3, per_s=2)
    for _ in range(3):
        limit.take()
    with pytest.raises(RefusalError) as refused:
        limit.take()
    assert (refused.value.code, refused.value.close_code) == (
        "too_many_requests",
        CloseCode.NOT_ALLOWED,
    )
    assert "2 update and finalize messages a second" in refused.value.message
    await clock.advance(0.5)
    limit.take()
    with pytest.raises(RefusalError):
        limit.take()


async def test_a_long_silence_saves_no_more_than_a_burst() -> None:
    clock = ManualClock()
    limit = RequestLimit(clock, burst=3, per_s=2)
    await clock.advance(1_000)
    for _ in range(3):
        limit.take()
    with pytest.raises(RefusalError):
        limit.take()


class Hand:
    """A clock set by hand."""

    time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        raise AssertionError(delay_s, callback)


@given(st.lists(st.floats(0, 5), max_size=80))
def test_never_more_than_burst_and_rate_allow(waits_s: list[float]) -> None:
    clock = Hand()
    limit = RequestLimit(clock, burst=4, per_s=3)
    n_taken = 0
    for wait_s in waits_s:
        clock.time_s += wait_s
        try:
            limit.take()
        except RefusalError:
            continue
        n_taken += 1
    assert n_taken <= 4 + 3 * clock.time_s + 1e-6
