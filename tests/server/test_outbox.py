from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from audiokv.server.outbox import CLOSE_TIMEOUT_S, SEND_TIMEOUT_S, Outbox
from audiokv.server.refusals import CloseCode
from tests.server.doubles import FakeWire, ManualClock, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Pumped:
    """An outbox whose pump runs."""

    def __init__(self) -> None:
        self.wire = FakeWire()
        self.clock = ManualClock()
        self.outbox = Outbox(self.wire, self.clock, max_bytes=100, skip_partials_bytes=20)
        self.pump = asyncio.ensure_future(self.outbox.pump())


@pytest.fixture
async def pumped() -> AsyncIterator[Pumped]:
    pumped = Pumped()
    yield pumped
    pumped.pump.cancel()


async def test_messages_go_out_in_order_and_then_the_close(pumped: Pumped) -> None:
    pumped.outbox.put(b"live")
    pumped.outbox.put_backlog([b"past 1", b"past 2"])
    pumped.outbox.put_partial(b"partial")
    await settle()
    pumped.outbox.put(b"later")
    pumped.outbox.finish(CloseCode.DONE, "done")
    pumped.outbox.finish(CloseCode.INTERNAL, "too late")
    pumped.outbox.put(b"too late")
    await pumped.pump
    assert pumped.wire.sent == [b"past 1", b"past 2", b"live", b"partial", b"later"]
    assert pumped.wire.closed == (1000, "done")
    assert pumped.outbox.is_said
    assert pumped.outbox.waiting_bytes == 0
    assert pumped.clock.n_waiting == 0


async def test_a_receiver_that_is_behind_loses_partials_but_no_final(pumped: Pumped) -> None:
    pumped.wire.can_send.clear()
    for _ in range(4):
        pumped.outbox.put(b"final   10")
        pumped.outbox.put_partial(b"partial 10")
    await settle()
    pumped.wire.can_send.set()
    await settle()
    assert pumped.wire.sent.count(b"final   10") == 4
    assert pumped.outbox.n_skipped == 4 - pumped.wire.sent.count(b"partial 10") > 0
    pumped.outbox.put_partial(b"caught up")
    await settle()
    assert pumped.wire.sent[-1] == b"caught up"


async def test_a_receiver_far_behind_is_cut_off(pumped: Pumped) -> None:
    pumped.wire.can_send.clear()
    for _ in range(10):
        pumped.outbox.put(b"10 bytes..")
    assert not pumped.wire.was_aborted()
    pumped.outbox.put(b"10 bytes..")
    assert pumped.wire.was_aborted()
    assert pumped.outbox.is_ending
    n_waiting = pumped.outbox.waiting_bytes
    pumped.outbox.put(b"ignored")
    assert pumped.outbox.waiting_bytes == n_waiting


async def test_the_past_of_a_stream_does_not_count_as_being_behind(pumped: Pumped) -> None:
    pumped.wire.can_send.clear()
    pumped.outbox.put_backlog([b"x" * 1_000] * 50)
    pumped.outbox.put(b"live")
    await settle()
    assert not pumped.wire.was_aborted()
    pumped.wire.can_send.set()
    await settle(200)
    assert len(pumped.wire.sent) == 51


async def test_a_send_that_hangs_is_cut_off(pumped: Pumped) -> None:
    pumped.wire.can_send.clear()
    pumped.outbox.put(b"x")
    await pumped.clock.advance(SEND_TIMEOUT_S - 1)
    assert not pumped.wire.was_aborted()
    await pumped.clock.advance(1)
    assert pumped.wire.was_aborted()
    await pumped.pump


async def test_a_close_that_hangs_is_cut_off(pumped: Pumped) -> None:
    pumped.wire.can_close.clear()
    pumped.outbox.finish(CloseCode.DONE, "done")
    await pumped.clock.advance(CLOSE_TIMEOUT_S)
    assert pumped.wire.was_aborted()
    await pumped.pump
    assert not pumped.outbox.is_said


async def test_a_lost_connection_ends_the_pump(pumped: Pumped) -> None:
    pumped.wire.vanish()
    pumped.outbox.put(b"x")
    await pumped.pump
    assert pumped.wire.sent == []
    assert not pumped.outbox.is_said


async def test_cutting_wakes_an_idle_pump(pumped: Pumped) -> None:
    await settle()
    pumped.outbox.cut()
    await asyncio.wait_for(pumped.pump, 5)
    assert pumped.wire.closed is None


async def test_the_first_close_code_counts(pumped: Pumped) -> None:
    assert pumped.outbox.close_code is None
    pumped.outbox.finish(CloseCode.BAD_MESSAGE, "bad")
    pumped.outbox.finish(CloseCode.DONE, "done")
    assert pumped.outbox.close_code is CloseCode.BAD_MESSAGE
