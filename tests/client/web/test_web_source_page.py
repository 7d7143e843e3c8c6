"""The whole page as a source: microphone in, captions out, as a user sees it."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import srt
import webvtt

from tests.client.web.page_driver import transcript_of, until
from tests.client.web.script import Script, caption_message
from tests.client.web.test_web_capture import IS_IDLE, IS_LIVE, PROBLEMS

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SPOKEN = "he hoped there would be stew for dinner"
STORY: list[tuple[int, dict[str, Any]]] = [
    (200, caption_message(0, "he hoped their", 2, at_ms=100)),
    (400, caption_message(0, "he hoped there would", 3, at_ms=100)),
    (900, caption_message(0, SPOKEN + ".", at_ms=100)),
    (1000, caption_message(1, "turnips and", 0, at_ms=2600)),
    (1500, caption_message(1, "turnips & <b>carrots</b>", at_ms=2600, speaker="Ben")),
]


SESAME = "open-sesame"


async def start(page: Page) -> None:
    await page.click("#toggle")
    await until(page, IS_LIVE)


async def stop(page: Page) -> None:
    await page.click("#toggle")
    await until(page, IS_IDLE)


async def test_words_appear_as_tentative_and_end_in_the_transcript(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, server):
        assert await page.inner_text("#hint") == "Press Start and speak. The words appear here."
        await start(page)
        await until(page, "document.querySelectorAll('.tentative').length > 0")
        assert await page.is_hidden("#hint")
        await until(page, "document.querySelectorAll('#log .line').length === 2")
        assert await transcript_of(page) == f"{SPOKEN}. Ben: turnips & <b>carrots</b>"
        assert await page.inner_text("#language-chip") == "English"
        await until(page, "document.querySelector('#lag-chip').textContent.endsWith('s behind')")
        assert await page.inner_text("#status") == "Live"
        await stop(page)
        assert server.stream.is_done
        assert await page.inner_text("#status") == "Ready"
        assert await page.evaluate(PROBLEMS) == []


async def test_the_meter_shows_that_sound_arrives(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        await start(page)
        level = "Number(document.querySelector('#meter').style.getPropertyValue('--level'))"
        await until(page, f"{level} > 0.3")
        await stop(page)
        assert await page.evaluate(level) == 0


async def test_a_cut_in_mid_speech_loses_no_sample_and_no_word(open_page: OpenPage) -> None:
    script = Script(STORY, cut_at_ms=[700, 1800], away_s=0.7, lost_ms=200)
    async with open_page(script) as (page, server):
        await page.evaluate("""async () => {
          const { StreamLink } = await import("./js/stream_link.js");
          const { push } = StreamLink.prototype;
          window.recorded = [];
          StreamLink.prototype.push = function (samples) {
            recorded.push(...samples);
            push.call(this, samples);
          };
        }""")
        await start(page)
        await until(page, "document.body.dataset.state === 'waiting'")
        assert await page.inner_text("#status") == "Reconnecting…"
        await server.heard(3500)
        await stop(page)
        assert await page.evaluate(PROBLEMS) == []
        assert await transcript_of(page) == f"{SPOKEN}. Ben: turnips & <b>carrots</b>"
        assert len(server.starts) == 3
        assert len(server.streams) == 1
        audio = np.frombuffer(bytes(server.stream.audio), "<i2")
        np.testing.assert_array_equal(audio, await page.evaluate("recorded"))
        assert np.max(audio) > 1000


async def test_a_second_recording_goes_on_in_the_same_transcript(open_page: OpenPage) -> None:
    story = [(200, caption_message(0, "part", at_ms=100))]
    async with open_page(Script(story, later_captions=story)) as (page, server):
        for _ in range(2):
            await start(page)
            await server.heard(1200)
            await stop(page)
        assert await transcript_of(page) == "part part"
        times = await page.locator("#log .time").all_inner_texts()
        assert times[0] == "0:00"
        assert times[1] in ("0:01", "0:02")


async def test_downloads_parse_and_hold_the_transcript(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, server):
        assert await page.is_disabled("[data-download=srt]")
        await start(page)
        await server.heard(1600)
        await stop(page)
        texts = {}
        for kind in ("txt", "srt", "vtt"):
            async with page.expect_download() as download:
                await page.click(f"[data-download={kind}]")
            saved = await (await download.value).path()
            texts[kind] = await asyncio.to_thread(Path(saved).read_text)
            assert (await download.value).suggested_filename.endswith(f".{kind}")
        assert texts["txt"] == f"{SPOKEN}.\nBen: turnips & <b>carrots</b>\n"
        cues = list(srt.parse(texts["srt"]))
        assert [cue.content for cue in cues] == [f"{SPOKEN}.", "Ben: turnips & <b>carrots</b>"]
        assert cues[0].start.total_seconds() == pytest.approx(0.1)
        assert cues[1].start.total_seconds() == pytest.approx(2.6)
        captions = webvtt.from_buffer(StringIO(texts["vtt"])).captions
        assert [c.start for c in captions] == ["00:00:00.100", "00:00:02.600"]
        assert "turnips &amp; &lt;b&gt;carrots&lt;/b&gt;" in texts["vtt"]


async def test_the_transcript_can_be_copied(open_page: OpenPage) -> None:
    permissions = ["microphone", "clipboard-read", "clipboard-write"]
    async with open_page(Script(STORY), permissions=permissions) as (page, server):
        await start(page)
        await server.heard(1600)
        await stop(page)
        await page.click("#copy")
        await until(page, "document.querySelector('#copy').textContent === 'Copied'")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == f"{SPOKEN}.\nBen: turnips & <b>carrots</b>\n"


async def test_the_transcript_is_cleared_only_when_meant(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, server):
        await start(page)
        await server.heard(1600)
        await stop(page)
        await page.click("#open-clear")
        await page.keyboard.press("Escape")
        assert await page.locator("#log .line").count() == 2
        await page.click("#open-clear")
        await page.click("#clear-dialog .primary")
        await until(page, "document.querySelectorAll('#log .line').length === 0")
        assert await page.is_visible("#empty")


async def test_the_token_is_asked_for_and_kept_for_this_tab_only(open_page: OpenPage) -> None:
    async with open_page(Script(STORY, token=SESAME)) as (page, server):
        await page.click("#toggle")
        await page.wait_for_selector("#token-dialog[open]")
        await page.fill("#token", "guess")
        await page.keyboard.press("Enter")
        await until(page, "document.querySelector('#token').value === ''")
        await page.wait_for_selector("#token-dialog[open]")
        await page.fill("#token", "open-sesame")
        await page.click("#token-dialog .primary")
        await until(page, IS_LIVE)
        await server.heard(1000)
        await stop(page)
        stored = await page.evaluate(
            "[Object.values(sessionStorage).join(), Object.values(localStorage).join()]"
        )
        assert stored[0] == "open-sesame"
        assert "sesame" not in stored[1]
        assert "sesame" not in page.url
        await start(page)
        await stop(page)


async def test_giving_up_on_the_token_stops_the_recording(open_page: OpenPage) -> None:
    async with open_page(Script(token=SESAME)) as (page, server):
        await page.click("#toggle")
        await page.wait_for_selector("#token-dialog[open]")
        await page.click("#token-cancel")
        await until(page, IS_IDLE)
        assert await page.evaluate(PROBLEMS) == ["token"]
        assert server.streams == []


async def test_a_server_that_is_away_or_full_is_told_and_then_found(open_page: OpenPage) -> None:
    async with open_page(Script(STORY, n_full=2, retry_after_s=0.5)) as (page, server):
        await page.click("#toggle")
        await until(page, f"{PROBLEMS}[0] === 'full'")
        assert "All places are taken." in await page.inner_text(".notice")
        await until(page, IS_LIVE)
        assert await page.evaluate(PROBLEMS) == []
        await server.heard(1000)
        await server.__aexit__(None, None, None)
        await until(page, f"{PROBLEMS}[0] === 'unreachable'")
        await page.click("#toggle")
        await until(page, "document.body.dataset.state === 'stopping'")
        assert await page.inner_text("#toggle-label") == "Do not wait"
        await page.click("#toggle")
        await until(page, IS_IDLE)


async def test_language_and_prompt_reach_the_server(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, server):
        await page.click("#open-settings")
        await page.fill("[data-setting=prompt]", "Siobhán")
        await page.click("#settings .primary")
        await start(page)
        assert server.stream.start["prompt"] == "Siobhán"
        labels = await page.locator("#language option").all_inner_texts()
        assert labels == ["Detect automatically", "English", "German", "Japanese"]
        await page.select_option("#language", "de")
        await server.wait_for(lambda: bool(server.stream.controls))
        assert server.stream.controls == [{"type": "update", "language": "de"}]
        await stop(page)
        await page.reload()
        assert await page.input_value("#language") == "de"
        await start(page)
        assert server.stream.start["language"] == "de"


async def test_the_stream_can_be_shared(open_page: OpenPage) -> None:
    async with open_page(Script(STORY)) as (page, server):
        await start(page)
        await page.click("#open-share")
        assert await page.input_value("#watch-link") == f"{server.url}?watch=s-0"
        assert await page.input_value("#overlay-link") == f"{server.url}?watch=s-0&overlay=1"


async def test_a_warning_of_the_server_is_shown(open_page: OpenPage) -> None:
    warning = {"type": "warning", "code": "rate_mismatch", "message": "Too slow.", "segment": 0}
    said = [(300, {**warning, "remedy": "Send faster.", "final": False})]
    async with open_page(Script(said)) as (page, _server):
        await start(page)
        await until(page, f"{PROBLEMS}[0] === 'rate_mismatch'")
        assert "Too slow.Send faster." in (await page.inner_text(".notice")).replace("\n", "")
