"""WCAG 2.2 AA where a machine can check it: contrast, keyboard, names, reflow, motion, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.client.web.page_driver import until
from tests.client.web.script import Script, caption_message

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MIN_CONTRAST = 4.5
MIN_CONTRAST_CONTROL = 3.0

# The contrast of every visible text against the nearest opaque ground under it.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((v) => v / 255).map(
      (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ratio = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const style = getComputedStyle(element);
    const hasText = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const isShown = element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (!isShown || element.matches(":disabled, option, legend:empty")) continue;
    if (hasText) {
      found.push(["text", element.textContent.trim().slice(0, 40),
                  ratio(rgba(style.color), ground(element))]);
    }
    if (element.matches("select, input, textarea, button.quiet")) {
      found.push(["border", element.id || element.dataset.setting || element.textContent,
                  ratio(rgba(style.borderTopColor), ground(element.parentElement))]);
    }
  }
  return found;
}"""

STORY = [
    (100, caption_message(0, "First by Anna.", speaker="Anna")),
    (150, caption_message(1, "Then by Ben.", speaker="Ben")),
    (200, caption_message(2, "And Chloe.", speaker="Chloe")),
    (250, caption_message(3, "At last Dana.", speaker="Dana")),
    (300, caption_message(4, "some words are tentative", 2, speaker="Anna")),
]


async def fill(page: Page) -> None:
    await page.click("#toggle")
    await until(page, "document.querySelectorAll('.tentative').length === 2")
    await page.evaluate("""async () => {
      const { Notices } = await import("./js/notices.js");
      new Notices(document.querySelector("#notices")).show(
        { id: "x", title: "A title.", remedy: "A remedy." });
    }""")


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("colours", ["theme", "white", "yellow", "black", "blue"])
async def test_every_text_has_contrast(open_page: OpenPage, theme: str, colours: str) -> None:
    address = f"?theme={theme}&colours={colours}&lines=5"
    async with open_page(Script(STORY), address) as (page, _server):
        await fill(page)
        await page.click("#open-settings")
        found = await page.evaluate(CONTRASTS)
        assert len(found) > 50
        low = [f for f in found if f[0] == "text" and f[2] < MIN_CONTRAST]
        faint = [f for f in found if f[0] == "border" and f[2] < MIN_CONTRAST_CONTROL]
        assert (low, faint) == ([], [])


async def test_everything_can_be_reached_and_used_by_keyboard(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, _server):
        reached: list[str] = []
        for _ in range(30):
            await page.keyboard.press("Tab")
            reached.append(
                await page.evaluate(
                    "document.activeElement.id || document.activeElement.className || 'body'"
                )
            )
            if reached[-1] == "log":
                break
            outline = await page.evaluate(
                "getComputedStyle(document.activeElement).outlineStyle + "
                "getComputedStyle(document.activeElement).outlineWidth"
            )
            assert outline == "solid3px", reached[-1]
        assert reached == ["skip", "open-settings", "toggle", "source", "language", "log"]
        await page.focus("#toggle")
        await page.keyboard.press("Enter")
        await until(page, "document.body.dataset.state === 'live'")
        await page.keyboard.press("Space")
        await until(page, "document.body.dataset.state === 'idle'")
        await page.focus("#open-settings")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#settings[open]")
        await page.keyboard.press("Escape")
        assert await page.evaluate("document.activeElement.id") == "open-settings"


async def test_every_control_has_a_name(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        nameless = await page.evaluate("""() => [...document.querySelectorAll(
          "button, select, input, textarea, [role=log], dialog")].filter((e) => {
            const label = e.labels?.length ? e.labels[0].textContent : "";
            const by = document.getElementById(e.getAttribute("aria-labelledby") ?? "");
            return !(label + (e.ariaLabel ?? "") + (by?.textContent ?? "") +
                     (e.matches("button") ? e.textContent : "")).trim();
          }).map((e) => e.outerHTML)""")
        assert nameless == []
        assert await page.get_attribute("html", "lang") == "en"


@pytest.mark.parametrize(("width", "size_percent"), [(320, 100), (1280, 200), (640, 200)])
async def test_large_text_and_narrow_screens_reflow(
    open_page: OpenPage, width: int, size_percent: int
) -> None:
    viewport = {"width": width, "height": 800}
    async with open_page(Script(STORY), viewport=viewport) as (page, _server):
        await fill(page)
        await page.evaluate(f"document.documentElement.style.fontSize = '{size_percent}%'")
        wide = await page.evaluate("""() => [...document.querySelectorAll("body *")].filter((e) =>
          e.checkVisibility() && !e.closest(".skip") && !e.closest("svg")
          && (e.getBoundingClientRect().right > innerWidth + 1
              || e.getBoundingClientRect().left < -1)).map((e) => e.outerHTML.slice(0, 80))""")
        assert wide == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.evaluate("document.querySelector('#settings').showModal()")
        assert await page.evaluate("""(() => { const d = document.querySelector("#settings");
          return d.scrollWidth <= d.clientWidth; })()""")


async def test_targets_are_large_enough(open_page: OpenPage) -> None:
    async with open_page(Script(), viewport={"width": 375, "height": 740}) as (page, _server):
        small = await page.evaluate("""() => [...document.querySelectorAll(
          "main button, header button, select")].filter((e) => e.checkVisibility())
          .map((e) => [e.id, e.getBoundingClientRect()])
          .filter(([, r]) => r.width < 24 || r.height < 24)""")
        assert small == []


async def test_nothing_moves_for_those_who_do_not_want_it(open_page: OpenPage) -> None:
    async with open_page(Script(), reduced_motion="reduce") as (page, _server):
        moving = await page.evaluate("""() => [...document.querySelectorAll("*")].filter((e) => {
          const style = getComputedStyle(e);
          return style.transitionDuration !== "0s" || style.animationName !== "none"; }).length""")
        assert moving == 0


async def test_state_changes_and_problems_are_announced(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, _server):
        await fill(page)
        assert await page.evaluate(
            "document.querySelector('#status').closest('[role=status]') !== null"
        )
        assert await page.get_attribute(".notice", "role") == "alert"
        await page.click("#open-settings")
        await page.uncheck("[data-setting=isAnnounced]")
        assert await page.get_attribute("#log", "aria-live") == "off"
