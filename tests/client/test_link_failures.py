"""When a link must not go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from audiokv.client.link import ReconnectingLink
from audiokv.client.settings import LinkSettings
from audiokv.client.timing import LoopClock
from audiokv.streaming.captions import Notice
from audiokv.streaming.errors import AudioKVError
from audiokv.streaming.messages import ErrorReport
from tests.client.conftest import speech
from tests.client.listening import at_once, events_of, link_to, said_in

if TYPE_CHECKING:
    from tests.client.conftest import ManualClock, ScriptedServer


@pytest.mark.parametrize("code", [1003, 1008, 4400, 4401])
async def test_a_refusal_is_passed_on_with_its_remedy(server: ScriptedServer, code: int) -> None:
    server.refusals = [(ErrorReport("no_way", "This cannot be.", "Do that."), code)]
    async with link_to(server) as link:
        with pytest.raises(AudioKVError, match=r"This cannot be\. Do that\.") as failure:
            await link.stop()
        with pytest.raises(AudioKVError):
            await events_of(link)
        with pytest.raises(AudioKVError):
            await link.send(b"")
    assert failure.value.code == "no_way"


async def test_a_full_server_is_asked_again_when_it_says(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.refusals = [(ErrorReport("full", "Full.", "Later.", retry_after_s=7.0), 1013)]
    link = ReconnectingLink(LinkSettings(url=server.url), clock=manual_clock, backoff=at_once())
    async with link:
        await link.send(speech(1))
        notice = await anext(link)
        assert isinstance(notice, Notice)
        assert notice.code == "connection_lost"
        await asyncio.sleep(0.02)
        assert len(server.starts) == 1
        manual_clock.advance(7.0)
        await link.stop()
        assert said_in(await events_of(link)) == ["w1"]


async def test_nobody_there_is_an_error_at_once() -> None:
    async with ReconnectingLink(LinkSettings(url="ws://127.0.0.1:9/v1/stream")) as link:
        with pytest.raises(AudioKVError, match=r"refuses the connection\. Check the address"):
            await link.stop()


async def test_patience_ends(server: ScriptedServer) -> None:
    server.on_message = {1: "cut after"}.get
    async with link_to(server, patience_s=0.0) as link:
        await link.send(speech(1))
        server.refusals = [(None, 1001)] * 1000
        with pytest.raises(AudioKVError, match="closed the connection"):
            await link.stop()


class TickingClock(LoopClock):
    """A clock on which a second passes whenever someone looks."""

    def __init__(self) -> None:
        self._time_s = 0.0

    def now_s(self) -> float:
        self._time_s += 1.0
        return self._time_s


async def test_a_server_that_fails_at_one_spot_again_and_again_is_given_up(
    server: ScriptedServer,
) -> None:
    server.on_message = lambda _: "forget"
    settings = LinkSettings(url=server.url, patience_s=100.0)
    async with ReconnectingLink(settings, clock=TickingClock(), backoff=at_once()) as link:
        await link.send(speech(3))
        with pytest.raises(AudioKVError, match="vanished"):
            await link.stop()
    assert len(server.starts) > 3


async def test_a_server_that_is_full_for_longer_than_one_waits_is_an_error(
    server: ScriptedServer,
) -> None:
    server.refusals = [(ErrorReport("full", "All taken.", "Later.", retry_after_s=900.0), 1013)]
    async with link_to(server, patience_s=60.0) as link:
        with pytest.raises(AudioKVError, match=r"All taken\. Later\.") as failure:
            await link.stop()
    assert failure.value.code == "full"
