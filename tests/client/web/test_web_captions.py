"""The live captions: committed words stay, the tail changes, and the layout does neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.client.web.script import Script, caption_message

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SETUP = """async () => {
  const { LiveCaptions } = await import("./js/captions.js");
  const { SpeakerColours } = await import("./js/speakers.js");
  document.querySelector("#hint").hidden = true;
  window.box = document.querySelector("#captions");
  window.live = new LiveCaptions(box, new SpeakerColours());
  window.show = async (caption) => {
    live.show({ key: String(caption.segment), language: "en", speaker: null, ...caption });
    await new Promise((resolve) => setTimeout(resolve, 110));
  };
}"""


async def show(page: Page, caption: dict[str, Any]) -> None:
    await page.evaluate("(caption) => show(caption)", caption)


async def classes(page: Page) -> list[tuple[str, str]]:
    found = await page.evaluate(
        "[...box.querySelectorAll('.word')].map((w) => [w.textContent, w.className])"
    )
    return [(text, name) for text, name in found]


async def test_only_the_tail_is_tentative_and_only_it_is_replaced(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        await show(page, caption_message(0, "He hoped their stew", 2))
        assert await classes(page) == [
            ("He", "word"),
            ("hoped", "word"),
            ("their", "word tentative"),
            ("stew", "word tentative"),
        ]
        await page.evaluate("""() => {
          window.before = [...box.querySelectorAll(".word")].slice(0, 2);
          window.touched = 0;
          const isBefore = ({ target }) => before.some((word) => word.contains(target));
          new MutationObserver((records) => {
            touched += records.filter(isBefore).length;
          }).observe(box, { subtree: true, childList: true, characterData: true,
                            attributes: true });
        }""")
        await show(page, caption_message(0, "He hoped there would be", 3))
        assert await classes(page) == [
            ("He", "word"),
            ("hoped", "word"),
            ("there", "word"),
            ("would", "word tentative"),
            ("be", "word tentative"),
        ]
        is_same, touched = await page.evaluate("""[
          before.every((w, i) => w === box.querySelectorAll(".word")[i]), touched]""")
        assert is_same
        assert touched == 0
        await show(page, caption_message(0, "He hoped there would be stew."))
        assert {name for _, name in await classes(page)} == {"word"}
        assert await box_text(page) == "He hoped there would be stew."


async def box_text(page: Page) -> str:
    return str(await page.evaluate("box.innerText"))


async def test_committing_a_word_moves_nothing(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        rects = """[...box.querySelectorAll(".word")].map((w) => {
          const r = w.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })"""
        await show(page, caption_message(0, "fluffy if illicit waffles", 0))
        tentative = await page.evaluate(rects)
        await show(page, caption_message(0, "fluffy if illicit waffles", 4))
        assert await page.evaluate(rects) == tentative


@pytest.mark.parametrize("lines", [1, 2, 4])
async def test_the_box_keeps_its_height_whatever_it_shows(open_page: OpenPage, lines: int) -> None:
    async with open_page(Script(), f"?lines={lines}") as (page, _server):
        await page.evaluate(SETUP)
        heights = """[box.offsetHeight, document.querySelector(".stage").offsetHeight,
                      document.querySelector(".transcript").getBoundingClientRect().top]"""
        empty = await page.evaluate(heights)
        for text in ["a", "word " * 60, "word " * 12, "W" * 200, "字" * 90, "مرحبا " * 30]:
            await show(page, caption_message(len(text), text.strip(), 0))
            assert await page.evaluate(heights) == empty


async def test_a_tail_that_got_shorter_leaves_the_lines_above_in_place(open_page: OpenPage) -> None:
    async with open_page(Script(), "?lines=3") as (page, _server):
        await page.evaluate(SETUP)
        await show(page, caption_message(0, "An earlier line."))
        top = "box.firstElementChild.getBoundingClientRect().top"
        await show(page, caption_message(1, "these words fill more than a line of it all", 0))
        two_lines = await page.evaluate(top)
        await show(page, caption_message(1, "these", 0))
        assert await page.evaluate(top) == two_lines


async def test_the_newest_line_is_always_visible(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        for n in range(12):
            await show(page, caption_message(n, f"sentence number {n} " * 3, None))
            last, box = await page.evaluate("""[
              [...box.querySelectorAll(".word")].at(-1).getBoundingClientRect().bottom,
              box.getBoundingClientRect().bottom]""")
            assert last <= box
        assert await page.evaluate("box.childElementCount") <= 6


async def test_markup_in_a_caption_is_shown_as_it_is(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        evil = "<img src=x onerror=window.hit=1> <script>window.hit=1</script>"
        await show(page, caption_message(0, evil, speaker="<b>Eve</b>"))
        assert await box_text(page) == f"<b>Eve</b>: {evil}"
        assert await page.evaluate("[box.querySelector('img, script, b'), window.hit]") == [
            None,
            None,
        ]


async def test_language_direction_and_speaker_are_marked(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        await show(page, caption_message(0, "صباح الخير", language="ar", speaker="A"))
        await show(page, caption_message(1, "more", language="en", speaker="A"))
        await show(page, caption_message(2, "other", language="en", speaker="B"))
        found = await page.evaluate("""[...box.children].map((p) =>
          [p.lang, getComputedStyle(p).direction,
           p.querySelector(".speaker")?.textContent ?? ""])""")
        assert found == [["ar", "rtl", "A: "], ["en", "ltr", ""], ["en", "ltr", "B: "]]


async def test_a_speaker_who_becomes_known_is_named_then(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        shown = []
        for segment, n_tentative, speaker in (
            (0, 1, None),
            (0, 1, "speaker 1"),
            (0, 0, "speaker 2"),
            (1, 1, None),
            (1, 0, "speaker 2"),
            (2, 0, "speaker 1"),
        ):
            await show(page, caption_message(segment, "so be it", n_tentative, speaker=speaker))
            shown.append(await page.evaluate("[...box.children].map((p) => p.textContent)"))
        assert shown == [
            ["so be it"],
            ["speaker 1: so be it"],
            ["speaker 2: so be it"],
            ["speaker 2: so be it", "so be it"],
            ["speaker 2: so be it", "so be it"],
            ["speaker 2: so be it", "so be it", "speaker 1: so be it"],
        ]


async def test_a_segment_that_turned_out_empty_goes(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        await show(page, caption_message(0, "noise", 0))
        await show(page, caption_message(0, ""))
        assert await page.evaluate("box.childElementCount") == 0


async def test_no_more_than_ten_pictures_a_second(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        n_changes, text = await page.evaluate("""async () => {
          let n = 0;
          new MutationObserver(() => { n += 1; }).observe(box, { subtree: true, childList: true });
          const word = (i) => ({ text: `w${i}`, start_ms: 0, end_ms: 0, final: false });
          for (let i = 0; i < 50; i += 1) {
            live.show({ key: "0", segment: 0, final: false, language: null, speaker: null,
                        words: [word(i)] });
            await new Promise((resolve) => setTimeout(resolve, 10));
          }
          await new Promise((resolve) => setTimeout(resolve, 150));
          return [n, box.innerText];
        }""")
        assert 3 <= n_changes <= 9
        assert text == "w49"


async def test_whole_sentences_can_be_had_instead(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate(SETUP)
        await page.evaluate("live.isWhole = true")
        await show(page, caption_message(0, "not yet", 1))
        assert await box_text(page) == ""
        await show(page, caption_message(0, "not yet."))
        assert await box_text(page) == "not yet."
