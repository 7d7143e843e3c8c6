"""The page as a viewer, and as an overlay for a video mixer: no click, no microphone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.web.page_driver import transcript_of, until
from tests.client.web.script import Script, StreamRecord, caption_message

if TYPE_CHECKING:
    from tests.client.web.conftest import OpenPage
    from tests.client.web.scripted_server import ScriptedServer

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SESAME = "t-1"
IS_LIVE = "document.body.dataset.state === 'live'"


def a_stream(server: ScriptedServer, *captions: dict[str, Any]) -> None:
    stream = StreamRecord("s-0", {"sample_rate": 16000})
    stream.sent.extend({"type": "caption", "language": "en", **c} for c in captions)
    server.streams.append(stream)


async def test_a_viewer_reads_along_without_a_microphone(open_page: OpenPage) -> None:
    async with open_page(Script(), "?watch=s-0", permissions=[]) as (page, server):
        a_stream(server, caption_message(0, "Said before you came.", seq=1))
        await until(page, IS_LIVE)
        assert await page.is_hidden("#toggle")
        await until(page, "document.querySelectorAll('#log .line').length === 1")
        half = caption_message(1, "and this is <b>now</b>", 2, seq=2, language="en")
        await server.say({"type": "caption", **half})
        await until(page, "document.querySelectorAll('.tentative').length === 2")
        whole = caption_message(1, "and this is <b>now</b>", seq=3, language="en")
        await server.say({"type": "caption", **whole})
        await until(page, "document.querySelectorAll('#log .line').length === 2")
        assert await transcript_of(page) == "Said before you came. and this is <b>now</b>"
        await server.say({"type": "done"})
        await until(page, "document.querySelector('#status').textContent.includes('ended')")


async def test_a_transcript_tells_who_called(open_page: OpenPage) -> None:
    async with open_page(Script(), "?watch=s-0") as (page, server):
        a_stream(server, caption_message(0, "Good day.", seq=1))
        server.streams[0].metadata = {"from": "+1 555", "direction": "inbound"}
        await until(page, "document.querySelectorAll('#log .line').length === 1")
        async with page.expect_download() as download:
            await page.click("[data-download=txt]")
        saved = await (await download.value).path()
        text = await asyncio.to_thread(Path(saved).read_text)
        assert text == "from: +1 555\ndirection: inbound\n\nGood day.\n"


async def test_a_viewer_comes_back_after_a_cut(open_page: OpenPage) -> None:
    async with open_page(Script(), "?watch=s-0") as (page, server):
        a_stream(server, caption_message(0, "one", seq=1))
        await until(page, "document.querySelectorAll('#log .line').length === 1")
        server.streams[0].sent.append({"type": "caption", **caption_message(1, "two", seq=2)})
        await server.cut_viewers()
        await until(page, "document.querySelectorAll('#log .line').length === 2")
        assert await transcript_of(page) == "one two"
        assert await page.evaluate("document.querySelector('#notices').childElementCount") == 0


async def test_a_viewer_is_asked_for_the_token(open_page: OpenPage) -> None:
    async with open_page(Script(token=SESAME), "?watch=s-0") as (page, server):
        a_stream(server, caption_message(0, "one", seq=1))
        await page.wait_for_selector("#token-dialog[open]")
        await page.fill("#token", "t-1")
        await page.keyboard.press("Enter")
        await until(page, "document.querySelectorAll('#log .line').length === 1")


async def test_a_browser_source_brings_its_token_in_the_address(open_page: OpenPage) -> None:
    address = "?watch=s-0&overlay=1#token=t-1"
    async with open_page(Script(token=SESAME), address) as (page, server):
        a_stream(server, caption_message(0, "one", seq=1))
        await until(page, "document.querySelectorAll('.word').length === 1")
        assert "t-1" not in page.url


async def test_a_stream_that_is_not_there_is_told_until_it_is(open_page: OpenPage) -> None:
    async with open_page(Script(), "?watch=s-0") as (page, server):
        await page.wait_for_selector("[data-problem=stream-unknown]")
        a_stream(server)
        await page.wait_for_selector("[data-problem=stream-unknown]", state="detached")
        assert await page.evaluate(IS_LIVE)


async def test_the_overlay_is_captions_on_nothing(open_page: OpenPage) -> None:
    address = "?watch=s-0&overlay=1&size=120&lines=3&colours=yellow"
    async with open_page(Script(), address) as (page, server):
        a_stream(server, caption_message(0, "Over the picture.", seq=1))
        await until(page, "document.querySelectorAll('.word').length === 3")
        found = await page.evaluate("""() => {
          const style = (s) => getComputedStyle(document.querySelector(s));
          const visible = [...document.body.querySelectorAll("*")].filter(
            (e) => e.childElementCount === 0 && e.checkVisibility() && e.textContent.trim());
          return {
            grounds: ["html", "body", "main", ".stage"].map((s) => style(s).backgroundColor),
            texts: visible.map((e) => e.textContent.trim()),
            ink: style(".word").color,
            lines: document.documentElement.style.getPropertyValue("--lines"),
          };
        }""")
        assert set(found["grounds"]) == {"rgba(0, 0, 0, 0)"}
        assert found["texts"] == ["Over", "the", "picture."]
        assert found["ink"] == "rgb(255, 230, 0)"
        assert found["lines"] == "3"
        pixels = await page.screenshot(omit_background=True)
        assert pixels.startswith(b"\x89PNG")


async def test_an_overlay_of_ones_own_microphone_keeps_only_the_start_button(
    open_page: OpenPage,
) -> None:
    said = [(200, caption_message(0, "hello there"))]
    async with open_page(Script(said), "?overlay=1") as (page, _server):
        await page.click("#toggle")
        await until(page, "document.querySelectorAll('.word').length === 2")
        assert await page.is_hidden("#toggle")
        assert await page.is_hidden(".transcript")
