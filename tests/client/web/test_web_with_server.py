"""The page and AudioKV's own server: whatever is lost or doubled between them changes the text."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from audiokv.server.pages import load_pages
from tests.client.web.page_driver import transcript_of, until
from tests.client.web.test_web_capture import IS_IDLE, IS_LIVE, PROBLEMS
from tests.server.doubles import captions_in, speech, undisturbed
from tests.server.doubles import until as server_until
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from audiokv.server.app import CaptionServer

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SESAME = "open-sesame"

# Plays s16le audio through the page's own recorder in the place of a microphone.
PLAY = """async ([audio, speed]) => {
  const { Capture } = await import("./js/capture.js");
  const bytes = Uint8Array.from(atob(audio), (c) => c.charCodeAt(0));
  const samples = new Int16Array(bytes.buffer);
  Capture.open = async () => {
    const capture = new EventTarget();
    capture.sampleRateHz = 16000;
    capture.start = async () => {
      let position = 0;
      const timer = setInterval(() => {
        for (let i = 0; i < speed && position < samples.length; i += 1, position += 160) {
          const frame = samples.slice(position, position + 160);
          capture.dispatchEvent(new CustomEvent("frame", { detail: { samples: frame, peak: 1 } }));
        }
        if (position < samples.length) return;
        clearInterval(timer);
        document.body.dataset.played = "yes";
      }, 10);
    };
    capture.stop = async () => {};
    capture.close = () => {};
    return capture;
  };
}"""
HAS_PLAYED = "document.body.dataset.played === 'yes'"


@asynccontextmanager
async def page_of(
    browser: Browser, server: CaptionServer, address: str = ""
) -> AsyncIterator[Page]:
    context = await browser.new_context(permissions=["microphone"])
    page = await context.new_page()
    page.set_default_timeout(15_000)
    errors: list[str] = []
    violations: list[bool] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: violations.append("Content Security Policy" in said.text))
    await page.goto(server.page_url + address)
    try:
        yield page
    finally:
        await context.close()
    assert errors == []
    assert not any(violations)


def cut_everyone(server: CaptionServer) -> int:
    connections = list(server._gate._table._open)
    for connection in connections:
        connection.transport.abort()
    return len(connections)


async def play(page: Page, audio: bytes, *, speed: int) -> None:
    await page.evaluate(PLAY, [base64.b64encode(audio).decode(), speed])


def serving(**settings: Any) -> Any:
    return running_server(pages=dict(load_pages()), **settings)


def text_of(audio: bytes) -> str:
    return " ".join(c.text for c in captions_in(undisturbed(audio)) if c.is_final)


async def test_cuts_in_mid_speech_leave_the_text_as_it_was(browser: Browser) -> None:
    audio = speech(1, seconds=9)
    async with serving() as server, page_of(browser, server) as page:
        await play(page, audio, speed=3)
        await page.click("#toggle")
        await until(page, IS_LIVE)
        n_cut = 0
        for pause_s in (0.5, 0.31, 0.62, 0.17, 0.4):
            await asyncio.sleep(pause_s)
            await server_until(lambda: server.n_connections > 0)
            n_cut += cut_everyone(server)
        await until(page, HAS_PLAYED)
        await page.click("#toggle")
        await until(page, IS_IDLE)
        assert n_cut >= 5
        assert await transcript_of(page) == text_of(audio)
        assert await page.evaluate(PROBLEMS) == []


async def test_viewers_read_what_the_source_reads(browser: Browser) -> None:
    audio = speech(2, seconds=5)
    async with serving() as server, page_of(browser, server) as page:
        await play(page, audio, speed=2)
        await page.click("#toggle")
        await until(page, IS_LIVE)
        address = (await page.input_value("#watch-link")).removeprefix(server.page_url)
        async with page_of(browser, server, address) as viewer:
            await until(viewer, IS_LIVE)
            await until(page, HAS_PLAYED)
            await page.click("#toggle")
            await until(viewer, "document.body.dataset.state === 'ended'")
            await until(page, IS_IDLE)
            assert await transcript_of(viewer) == await transcript_of(page) == text_of(audio)


async def test_the_microphone_is_captioned(browser: Browser) -> None:
    async with serving() as server, page_of(browser, server) as page:
        await page.click("#toggle")
        await until(page, "document.querySelectorAll('#captions .word').length > 3")
        await page.click("#toggle")
        await until(page, IS_IDLE)
        assert len((await transcript_of(page)).split()) > 3
        assert server.registry.n_streams == 0


async def test_the_token_is_asked_for(browser: Browser) -> None:
    async with serving(token=SESAME) as server, page_of(browser, server) as page:
        await page.click("#toggle")
        await page.wait_for_selector("#token-dialog[open]")
        await page.fill("#token", SESAME)
        await page.keyboard.press("Enter")
        await until(page, IS_LIVE)


async def test_a_full_server_is_told(browser: Browser) -> None:
    async with serving(max_streams=1) as server, page_of(browser, server) as first:
        await first.click("#toggle")
        await until(first, IS_LIVE)
        async with page_of(browser, server) as second:
            await second.click("#toggle")
            await until(second, f"{PROBLEMS}[0] === 'full'")


async def test_a_language_the_model_lacks_is_told(browser: Browser) -> None:
    async with serving() as server, page_of(browser, server) as page:
        await page.evaluate("""() => localStorage.setItem("audiokv.settings",
          JSON.stringify({ language: "ja" }))""")
        await page.reload()
        await page.click("#toggle")
        await until(page, f"{PROBLEMS}[0] === 'unknown_language'")
        assert "'ja'" in await page.inner_text(".notice")
        await until(page, IS_IDLE)


async def test_a_server_that_forgot_the_stream_goes_on_with_the_rest(browser: Browser) -> None:
    audio = speech(3, seconds=6)
    async with serving() as server, page_of(browser, server) as page:
        await play(page, audio, speed=2)
        await page.click("#toggle")
        await until(page, "document.querySelectorAll('#log .line').length >= 1")
        server.registry._by_token.clear()
        cut_everyone(server)
        await until(page, HAS_PLAYED)
        await page.click("#toggle")
        await until(page, IS_IDLE)
        assert await page.evaluate(PROBLEMS) == []
        seconds = await page.evaluate("""[...document.querySelectorAll("#log .time")].map(
          (time) => Number(time.textContent.split(":")[1]))""")
        assert seconds == sorted(seconds)
        assert seconds[-1] >= 3  # the line of 4.2 s, or a cell earlier where the new stream began


async def test_the_cache_of_a_bounded_stream_is_shown(browser: Browser) -> None:
    async with serving() as server, page_of(browser, server) as page:
        await play(page, speech(3, seconds=3), speed=2)
        await page.click("#open-settings")
        await page.fill("[data-setting=prompt]", "count")  # bounds the scripted recogniser's cache
        await page.keyboard.press("Escape")
        await page.click("#toggle")
        await until(page, "!document.querySelector('#cache').hidden")
        assert await page.inner_text("#cache summary") == "Audio cache 90 of 100 slots"
