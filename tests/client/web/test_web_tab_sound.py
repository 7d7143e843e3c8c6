"""The sound of another tab as the source, and what happens when it is not to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.client.web.page_driver import open_browser, until
from tests.client.web.script import Script
from tests.client.web.scripted_server import ScriptedServer
from tests.client.web.test_web_capture import IS_IDLE, IS_LIVE, PROBLEMS

if TYPE_CHECKING:
    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TONE_HZ = 440


async def test_the_sound_of_a_tab_arrives() -> None:
    flags = [
        "--auto-select-tab-capture-source-by-title=TONE",
        "--autoplay-policy=no-user-gesture-required",
    ]
    async with (
        ScriptedServer(Script()) as server,
        open_browser(flags, left_out=["--mute-audio"]) as browser,
    ):
        context = await browser.new_context()
        tone = await context.new_page()
        await tone.set_content("<title>TONE</title>")
        await tone.evaluate(f"""() => {{
          window.context = new AudioContext();
          const tone = new OscillatorNode(context, {{ frequency: {TONE_HZ} }});
          tone.connect(context.destination);
          tone.start();
        }}""")
        page = await context.new_page()
        await page.goto(server.url)
        await page.select_option("#source", "tab")
        await page.click("#toggle")
        await until(page, IS_LIVE)
        await server.heard(1500)
        await page.click("#toggle")
        await until(page, IS_IDLE)
        audio = np.frombuffer(bytes(server.stream.audio), "<i2").astype(np.float64)
        rate_hz = server.stream.start["sample_rate"]
        spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio))))
        assert np.argmax(spectrum) * rate_hz / len(audio) == pytest.approx(TONE_HZ, abs=5)
        assert np.sqrt(np.mean(audio**2)) > 1000


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("async () => { throw new DOMException('', 'NotAllowedError'); }", "share-denied"),
        ("async () => new MediaStream()", "no-tab-sound"),
    ],
)
async def test_what_was_not_shared_is_told(open_page: OpenPage, answer: str, problem: str) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate(f"() => {{ navigator.mediaDevices.getDisplayMedia = {answer}; }}")
        await page.select_option("#source", "tab")
        await page.click("#toggle")
        await until(page, f"{PROBLEMS}.length > 0")
        assert await page.evaluate(PROBLEMS) == [problem]
        assert server.streams == []


async def test_a_browser_without_it_does_not_offer_it(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        assert await page.locator("#source option[value=tab]").count() == 1
        await page.add_init_script("delete MediaDevices.prototype.getDisplayMedia")
        await page.reload()
        await until(page, "document.documentElement.dataset.theme")
        assert await page.locator("#source option[value=tab]").count() == 0
