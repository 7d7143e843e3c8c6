"""The viewer's link: every final once, partials as they come, and patience."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.web.page_driver import until
from tests.client.web.script import Script, StreamRecord, caption_message

if TYPE_CHECKING:
    from tests.client.web.conftest import OpenPage
    from tests.client.web.scripted_server import ScriptedServer

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

WATCH = """async () => {
  const { WatchLink } = await import("./js/watch_link.js");
  const { socketUrl } = await import("./js/protocol.js");
  const link = new WatchLink({ url: socketUrl("v1/watch/s-0", location.href), firstRetryMs: 50 });
  window.seen = { captions: [], states: [] };
  link.addEventListener("caption", ({ detail }) => seen.captions.push([detail.seq, detail.text]));
  link.addEventListener("state", ({ detail }) => {
    seen.states.push(detail.state);
    seen.problem = detail.problem?.id ?? null;
  });
  link.open();
}"""


def a_stream(server: ScriptedServer, *captions: dict[str, Any]) -> None:
    stream = StreamRecord("s-0", {"sample_rate": 16000})
    stream.sent.extend({"type": "caption", "language": "en", **c} for c in captions)
    server.streams.append(stream)


async def test_finals_so_far_then_all_that_is_new(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        first = caption_message(0, "said before", seq=3)
        a_stream(server, first, caption_message(1, "half a", 1, seq=4))
        await page.evaluate(WATCH)
        await until(page, "seen.captions.length === 1")
        await server.say({"type": "caption", **caption_message(1, "half a line", 2, seq=5)})
        await server.say({"type": "caption", **caption_message(1, "half a line.", seq=6)})
        await until(page, "seen.captions.length === 3")
        assert await page.evaluate("seen.captions") == [
            [3, "said before"],
            [5, "half a line"],
            [6, "half a line."],
        ]


async def test_a_cut_repeats_nothing_and_misses_no_final(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        a_stream(server, caption_message(0, "one", seq=1))
        await page.evaluate(WATCH)
        await until(page, "seen.captions.length === 1")
        missed = {"type": "caption", **caption_message(1, "two", seq=2)}
        server.streams[0].sent.append(missed)
        await server.cut_viewers()
        await until(page, "seen.captions.length === 2")
        assert await page.evaluate("seen") == {
            "captions": [[1, "one"], [2, "two"]],
            "states": ["connecting", "live", "waiting", "connecting", "live"],
            "problem": None,
        }


async def test_the_end_of_the_stream_ends_the_link(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        a_stream(server)
        await page.evaluate(WATCH)
        await until(page, "seen.states.at(-1) === 'live'")
        await server.say({"type": "done"})
        await until(page, "seen.states.at(-1) === 'ended'")


async def test_a_stream_that_is_not_there_yet_is_looked_for(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate(WATCH)
        await until(page, "seen.problem === 'stream-unknown'")
        a_stream(server, caption_message(0, "now", seq=1))
        await until(page, "seen.captions.length === 1")


async def test_a_stream_that_failed_is_not_looked_for(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        told = {"code": "stream_failed", "message": "It failed.", "remedy": "Ask."}
        server.script.watch_error = (told, 1011)
        a_stream(server)
        await page.evaluate(WATCH)
        await until(page, "seen.states.at(-1) === 'failed'")
        assert await page.evaluate("seen.problem") == "stream_failed"


async def test_a_connection_on_which_nothing_comes_is_replaced(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        a_stream(server, caption_message(0, "one", seq=1))
        await page.evaluate(WATCH.replace("firstRetryMs", "silenceTimeoutMs: 700, firstRetryMs"))
        await until(page, "seen.states.at(-1) === 'live'")
        await until(page, "seen.states.length === 5")
        assert await page.evaluate("seen") == {
            "captions": [[1, "one"]],
            "states": ["connecting", "live", "waiting", "connecting", "live"],
            "problem": None,
        }


async def test_any_message_shows_that_the_connection_lives(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        a_stream(server)
        await page.evaluate(WATCH.replace("firstRetryMs", "silenceTimeoutMs: 1500, firstRetryMs"))
        await until(page, "seen.states.at(-1) === 'live'")
        progress = {"received_ms": 0, "received_samples": 0, "processed_ms": 0, "lag_ms": 0}
        for _ in range(8):
            await asyncio.sleep(0.3)  # the page has no clock but the wall's
            await server.say({"type": "progress", **progress})
        assert await page.evaluate("seen.states") == ["connecting", "live"]
