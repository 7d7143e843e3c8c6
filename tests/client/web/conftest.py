"""Chromium with a fake microphone, and the scripted server, for the page's tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.client.web.page_driver import open_browser, write_microphone_wav
from tests.client.web.script import Script
from tests.client.web.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from playwright.async_api import Browser, Page

    OpenPage = Callable[..., AbstractAsyncContextManager[tuple[Page, ScriptedServer]]]

SPOKEN = "librispeech/1089-134686-0000.flac"


@pytest.fixture(scope="session")
def spoken_wav(speech_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spoken sentence of 10.4 s for the fake microphone."""
    wav = tmp_path_factory.mktemp("microphone") / "spoken.wav"
    return write_microphone_wav(speech_folder / SPOKEN, wav)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(spoken_wav: Path) -> AsyncIterator[Browser]:
    """Chromium for all tests of the page."""
    async with open_browser(wav=spoken_wav) as chromium:
        yield chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def blank_page(browser: Browser) -> AsyncIterator[Page]:
    """A page beside the modules that runs none of them, to load them one by one."""
    async with ScriptedServer(Script()) as server:
        page = await browser.new_page()
        await page.route("**/blank", lambda route: route.fulfill(content_type="text/html", body=""))
        await page.goto(server.url + "blank")
        yield page
        await page.close()


@pytest.fixture
def open_page(browser: Browser) -> OpenPage:
    """Serve the page with a script and open it in a fresh context.

    The page fails the test when it logs an uncaught error.
    """

    @asynccontextmanager
    async def open_it(
        script: Script, address: str = "", **context_options: Any
    ) -> AsyncIterator[tuple[Page, ScriptedServer]]:
        options = {"permissions": ["microphone"], **context_options}
        context = await browser.new_context(**options)
        errors: list[str] = []
        async with ScriptedServer(script) as server:
            page = await context.new_page()
            page.set_default_timeout(15_000)
            page.on("pageerror", lambda error: errors.append(str(error)))
            await page.goto(server.url + address)
            try:
                yield page, server
            finally:
                await context.close()
        assert errors == []

    return open_it
