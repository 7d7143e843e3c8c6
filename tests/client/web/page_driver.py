"""Drives the page in headless Chromium whose microphone plays a WAV file."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import samplerate
import soundfile
from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from playwright.async_api import Browser, Page

CHROMIUM = os.environ.get("AUDIOKV_CHROMIUM", "/usr/bin/chromium")
FAKE_MICROPHONE_HZ = 48_000
QUIET_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def write_microphone_wav(recording: Path, wav: Path) -> Path:
    """Write a recording the way Chromium's fake microphone reads it: 48 kHz, mono, 16 bits.

    Args:
        recording: Any file that soundfile reads.
        wav: Where to write.

    Returns:
        ``wav``.
    """
    samples, rate_hz = soundfile.read(recording, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    if rate_hz != FAKE_MICROPHONE_HZ:
        mono = samplerate.resample(mono, FAKE_MICROPHONE_HZ / rate_hz, "sinc_medium")
    soundfile.write(wav, np.clip(mono, -1, 1), FAKE_MICROPHONE_HZ, subtype="PCM_16")
    return wav


@asynccontextmanager
async def open_browser(
    flags: Sequence[str] = (), wav: Path | None = None, left_out: Sequence[str] = ()
) -> AsyncIterator[Browser]:
    """Start Chromium; with ``wav`` its microphone plays that file once from each start.

    Args:
        flags: Further command-line flags.
        wav: File for the microphone.
        left_out: Flags that Playwright would set, and that must not be.
    """
    microphone: list[str] = []
    if wav is not None:
        microphone = [
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={wav}%noloop",
        ]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            headless=True,
            args=[*QUIET_FLAGS, *microphone, *flags],
            ignore_default_args=list(left_out),
        )
        try:
            yield browser
        finally:
            await browser.close()


async def until(page: Page, expression: str, timeout_s: float = 15.0) -> None:
    """Wait until an expression is true (Playwright's own wait needs eval, which the page forbids).

    Raises:
        TimeoutError: It is still false after ``timeout_s``.
    """
    is_true = await page.evaluate(
        f"""async () => {{
          const latestMs = performance.now() + {1000 * timeout_s};
          while (!({expression})) {{
            if (performance.now() > latestMs) return false;
            await new Promise((resolve) => setTimeout(resolve, 20));
          }}
          return true;
        }}"""
    )
    if not is_true:
        raise TimeoutError(expression)


async def transcript_of(page: Page) -> str:
    """Return the finished lines of the page's transcript, joined by spaces."""
    return " ".join(await page.locator("#log .line p").all_inner_texts())


async def run_page_async(
    url: str, wav: Path, seconds: float, screenshot: Path | None = None, token: str = ""
) -> str:
    """Open the page of a running server, let it hear a file, and return what it shows.

    Args:
        url: Address of the page, such as ``http://127.0.0.1:8765/``.
        wav: File for the microphone; 48 kHz mono 16 bits (see ``write_microphone_wav``).
        seconds: How long to record before Stop is pressed.
        screenshot: Where to write a PNG, taken while captions are on the page.
        token: Access token, if the server wants one.

    Returns:
        The text of the transcript after the last words arrived.
    """
    async with open_browser(wav=wav) as browser:
        context = await browser.new_context(
            permissions=["microphone"], viewport={"width": 1280, "height": 800}
        )
        page = await context.new_page()
        await page.goto(f"{url}#token={token}" if token else url)
        await page.click("#toggle")
        await page.wait_for_selector('body[data-state="live"]', timeout=30_000)
        await asyncio.sleep(seconds)
        if screenshot is not None:
            await page.screenshot(path=screenshot)
        await page.click("#toggle")
        await page.wait_for_selector('body[data-state="idle"]', timeout=60_000)
        return await transcript_of(page)


def run_page(
    url: str, wav: Path, seconds: float, screenshot: Path | None = None, token: str = ""
) -> str:
    """Do ``run_page_async`` outside an event loop."""
    return asyncio.run(run_page_async(url, wav, seconds, screenshot, token))
