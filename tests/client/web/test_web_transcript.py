"""The transcript: finals once, in a log that follows the end unless the reader scrolls away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.client.web.page_driver import until
from tests.client.web.script import Script, caption_message

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SETUP = """async () => {
  const { Transcript } = await import("./js/transcript.js");
  const { SpeakerColours } = await import("./js/speakers.js");
  window.log = document.querySelector("#log");
  document.querySelector("#empty").hidden = true;
  window.transcript = new Transcript(log, new SpeakerColours());
  window.follows = [];
  transcript.addEventListener("follow", ({ detail }) => follows.push(detail));
  window.add = (caption) => transcript.add({ key: String(caption.segment), speaker: null,
                                             language: "en", ...caption });
}"""


async def add(page: Page, segment: int, text: str, **more: Any) -> None:
    await page.evaluate("(caption) => add(caption)", caption_message(segment, text, **more))


async def test_each_final_is_a_line_once(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        await add(page, 0, "Good morning.", at_ms=61_000, speaker="Anna")
        await add(page, 0, "Good morning.", at_ms=61_000, speaker="Anna")
        await add(page, 1, "")
        await add(page, 2, "Guten Morgen.", at_ms=3_723_000, speaker="Anna", language="de")
        lines = await page.evaluate("""[...log.children].map((line) => [
          line.querySelector(".time").textContent, line.querySelector("p").textContent,
          line.querySelector("p").lang, line.querySelector("p").dir])""")
        assert lines == [
            ["1:01", "Anna: Good morning.", "en", "auto"],
            ["1:02:03", "Guten Morgen.", "de", "auto"],
        ]


async def test_a_screen_reader_gets_finals_only_and_times_never(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        found = await page.evaluate("""() => {
          const log = document.querySelector("#log");
          return [log.getAttribute("role"), log.getAttribute("aria-live"),
                  log.getAttribute("aria-atomic"), log.getAttribute("aria-relevant"),
                  document.querySelector("#captions").getAttribute("aria-hidden")];
        }""")
        assert found == ["log", "polite", "false", "additions", "true"]
        await page.evaluate(SETUP)
        await add(page, 0, "Hello.")
        assert await page.get_attribute("#log .time", "aria-hidden") == "true"


async def test_the_end_is_followed_until_the_reader_scrolls_up(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        for n in range(60):
            await add(page, n, f"line {n}")
        at_end = "log.scrollHeight - log.clientHeight - log.scrollTop < 2"
        assert await page.evaluate(at_end)
        await page.evaluate("log.scrollTop = 0")
        await until(page, "follows.at(-1).isFollowing === false")
        await add(page, 60, "new")
        await add(page, 61, "newer")
        assert await page.evaluate("[log.scrollTop, follows.at(-1)]") == [
            0,
            {"isFollowing": False, "unread": 2},
        ]
        await page.evaluate("transcript.jumpToEnd()")
        assert await page.evaluate(at_end)
        assert await page.evaluate("follows.at(-1)") == {"isFollowing": True, "unread": 0}
        await add(page, 62, "newest")
        assert await page.evaluate(at_end)


async def test_after_hours_the_page_holds_a_thousand_lines_and_the_files_all(
    open_page: OpenPage,
) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        shown, kept, hidden, first = await page.evaluate("""() => {
          for (let n = 0; n < 1500; n += 1) {
            add({ segment: n, final: true, start_ms: n * 1000, end_ms: n * 1000 + 900,
                  text: "x", words: [{ text: `line${n}`, start_ms: n * 1000, end_ms: 0 }] });
          }
          return [log.childElementCount, transcript.finals.length, transcript.nHidden,
                  log.querySelector("p").textContent];
        }""")
        assert (shown, kept, hidden, first) == (1000, 1500, 500, "line500")


async def test_markup_in_a_final_is_shown_as_it_is(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        evil = '<img src=x onerror="window.hit=1"><b>bold</b>'
        await add(page, 0, evil, speaker="<i>x</i>")
        assert await page.inner_text("#log p") == f"<i>x</i>: {evil}"
        assert await page.evaluate("[log.querySelector('img, i'), window.hit]") == [None, None]


async def test_clearing_begins_anew(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        await add(page, 0, "gone")
        await page.evaluate("transcript.clear()")
        assert await page.evaluate("[log.childElementCount, transcript.finals.length]") == [0, 0]
        await add(page, 0, "again")
        assert await page.inner_text("#log p") == "again"
