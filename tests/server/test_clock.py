from __future__ import annotations

import asyncio

import pytest

from audiokv.server.clock import LoopClock, deadline, sleep
from tests.server.doubles import ManualClock, settle


async def test_the_loops_clock_goes_on_and_calls_back() -> None:
    clock = LoopClock()
    before_s = clock.now_s()
    done = asyncio.Event()
    clock.call_later(0, done.set)
    await asyncio.wait_for(done.wait(), 5)
    assert clock.now_s() >= before_s


async def test_a_deadline_ends_what_takes_longer() -> None:
    clock = ManualClock()

    async def wait_too_long() -> None:
        async with deadline(clock, 10):
            await asyncio.Event().wait()

    waiting = asyncio.ensure_future(wait_too_long())
    await clock.advance(9.9)
    assert not waiting.done()
    await clock.advance(0.1)
    with pytest.raises(TimeoutError):
        await waiting


async def test_a_deadline_that_was_kept_leaves_no_timer() -> None:
    clock = ManualClock()
    async with deadline(clock, 10):
        await settle()
    assert clock.n_waiting == 0


async def test_sleep_takes_its_time_and_leaves_no_timer_when_cancelled() -> None:
    clock = ManualClock()
    sleeping = asyncio.ensure_future(sleep(clock, 2))
    await clock.advance(1.9)
    assert not sleeping.done()
    await clock.advance(0.1)
    await sleeping
    sleeping = asyncio.ensure_future(sleep(clock, 2))
    await settle()
    sleeping.cancel()
    await settle()
    assert clock.n_waiting == 0
