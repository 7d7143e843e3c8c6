"""The panel about the audio cache: there on demand only, readable as text, and still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.client.web.page_driver import until
from tests.client.web.script import Script, StreamRecord, caption_message
from tests.client.web.test_web_accessibility import CONTRASTS, MIN_CONTRAST
from tests.client.web.test_web_capture import IS_LIVE

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CACHE: dict[str, Any] = {
    "policy": "audiokv",
    "seen_slots": 1655,
    "held_slots": 142,
    "budget_slots": 160,
    "pools": {"base": 90, "buffer": 44, "reserve": 8},
    "n_evictions": {"hot": 0, "between_steps": 31, "in_pauses": 2},
    "held_bytes": 872_448,
    "left_slots": {"forced": 3, "ahead": 1486, "expired": 24, "shared": 0},
    "chosen_slots": {"committed": 1402, "silence": 61, "speech": 26},
}
IS_SHOWN = "!document.querySelector('#cache').hidden"
PLACES = """() => ["#captions", "#toggle", "#language", "#transcript-title", "#log"].map((id) => {
  const { left, top } = document.querySelector(id).getBoundingClientRect();
  return [id, left, top]; })"""
ROWS = """() => [...document.querySelectorAll("#cache, #cache summary, #cache dl div, .cache-bar")]
  .map((e) => { const { left, top, right, bottom } = e.getBoundingClientRect();
                return [left, top, right, bottom]; })"""


async def listen(page: Page) -> None:
    await page.click("#toggle")
    await until(page, IS_LIVE)


async def shown(page: Page) -> dict[str, str]:
    pairs: list[tuple[str, str]] = await page.evaluate("""() =>
      [...document.querySelectorAll("#cache dl div")].map((row) =>
        [row.querySelector("dt").textContent, row.querySelector("dd").innerText])""")
    return dict(pairs)


async def test_it_says_what_is_held_what_left_and_why(open_page: OpenPage) -> None:
    async with open_page(Script(cache=CACHE)) as (page, _server):
        assert await page.is_hidden("#cache")
        await listen(page)
        await until(page, IS_SHOWN)
        assert await page.inner_text("#cache summary") == "Audio cache 142 of 160 slots"
        assert await page.is_hidden("#cache dl >> nth=0")
        await page.focus("#cache summary")
        await page.keyboard.press("Enter")
        assert await page.is_visible("#cache dl >> nth=0")
        assert await shown(page) == {
            "Base, judged": "90",
            "Buffer, new": "44",
            "Reserve, guarded": "8",
            "Free": "18",
            "Memory": "872 kB",
            "Seen so far": "1,655",
            "Left": "1,513",
            "Before room was needed": "1,486",
            "When room was needed": "3",
            "With old audio": "24",
            "Shared silence": "0",
            "Policy": "audiokv",
            "Words already final": "1,402",
            "Silence": "61",
            "Words still open": "26",
        }
        titles = await page.locator("#cache h3").all_inner_texts()
        assert titles == ["What is held", "What left, and when", "What the policy let go"]
        widths = await page.evaluate("""() => {
          const width = (e) => e.getBoundingClientRect().width;
          const bar = document.querySelector(".cache-bar");
          return [...bar.children].map((e) => width(e) / width(bar)); }""")
        assert widths == pytest.approx([90 / 160, 44 / 160, 8 / 160], abs=0.01)


async def test_a_server_without_a_budget_shows_no_panel(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await listen(page)
        await server.heard(700)
        await until(page, "document.querySelector('#lag-chip').textContent.endsWith('behind')")
        assert await page.is_hidden("#cache")


async def test_nothing_moves_when_it_comes_nor_while_it_counts(open_page: OpenPage) -> None:
    script = Script(cache=None)
    async with open_page(script) as (page, server):
        await listen(page)
        await server.heard(300)
        before = await page.evaluate(PLACES)
        script.cache = CACHE
        await until(page, IS_SHOWN)
        assert await page.evaluate(PLACES) == before
        await page.click("#cache summary")
        rows = await page.evaluate(ROWS)
        script.cache = CACHE | {
            "seen_slots": 4_123_655,
            "held_slots": 159,
            "held_bytes": 98_872_448,
            "pools": {"base": 1, "buffer": 157, "reserve": 1},
            "left_slots": {"forced": 0, "ahead": 4_123_496, "expired": 0, "shared": 0},
        }
        await until(page, "document.querySelector('[data-cache=seen]').innerText === '4,123,655'")
        assert await page.evaluate(ROWS) == rows
        assert await page.inner_text("[data-cache=bytes]") == "99 MB"


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_every_text_of_it_has_contrast_on_a_narrow_screen_too(
    open_page: OpenPage, theme: str
) -> None:
    viewport = {"width": 320, "height": 800}
    async with open_page(Script(cache=CACHE), f"?theme={theme}", viewport=viewport) as (page, _):
        await listen(page)
        await until(page, IS_SHOWN)
        await page.click("#cache summary")
        found = await page.evaluate(CONTRASTS)
        texts = {text for kind, text, ratio in found if kind == "text" and ratio >= MIN_CONTRAST}
        assert {"Words still open", "1,402", "Buffer, new"} <= texts
        assert [f for f in found if f[0] == "text" and f[2] < MIN_CONTRAST] == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        size = await page.locator("#cache summary").bounding_box()
        assert size is not None
        assert min(size["width"], size["height"]) >= 24  # the least target size of WCAG 2.2


@pytest.mark.parametrize("overlay", ["", "&overlay=1"])
async def test_a_viewer_sees_it_but_a_video_does_not(open_page: OpenPage, overlay: str) -> None:
    async with open_page(Script(), f"?watch=s-0{overlay}", permissions=[]) as (page, server):
        stream = StreamRecord("s-0", {"sample_rate": 16000})
        stream.sent.append({"type": "caption", "language": "en", **caption_message(0, "x", seq=1)})
        server.streams.append(stream)
        await until(page, "document.querySelectorAll('#log .line').length === 1")
        progress = {"type": "progress", "received_ms": 0, "received_samples": 0}
        await server.say({**progress, "processed_ms": 0, "lag_ms": 0, "cache": CACHE})
        await until(page, IS_SHOWN)
        assert await page.is_visible("#cache") == (not overlay)


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (9960, "10 kB"), (999_700, "1.0 MB"),
     (5.4e9, "5.4 GB"), (5.4e12, "5400 GB")],
)  # fmt: skip
async def test_sizes_are_short(blank_page: Page, n_bytes: float, text: str) -> None:
    script = "async (n) => (await import('./js/cache_view.js')).shownBytes(n)"
    assert await blank_page.evaluate(script, n_bytes) == text
