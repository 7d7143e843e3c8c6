"""The connection itself: why it failed is found out, and what helps is tried."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.server import serve

from tests.client.web.script import Script
from tests.client.web.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from playwright.async_api import Page
    from websockets.asyncio.server import ServerConnection

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SESAME = "right-1"

# Opens a source's link and reports its states until one of those awaited.
OPEN = """async ({ until, token = "", url = null, tokenLater = null, options = {} }) => {
  const { StreamLink } = await import("./js/stream_link.js");
  const { socketUrl } = await import("./js/protocol.js");
  const link = new StreamLink({
    url: url ?? socketUrl("v1/stream", location.href), token, firstRetryMs: 50,
    start: { sampleRateHz: 16000 }, ...options,
  });
  const states = [];
  await new Promise((resolve) => {
    link.addEventListener("state", ({ detail: { state, problem, retryInMs } }) => {
      states.push([state, problem ? problem.id : null, Math.round(retryInMs)]);
      if (state === "token" && tokenLater !== null) {
        setTimeout(() => link.setToken(tokenLater), 0);
      } else if (state === until) resolve();
    });
    link.open();
  });
  const seen = [...states];
  link.end("ended");
  return seen;
}"""


async def states_of(page: Page, awaited: str, **more: Any) -> list[tuple[str, str | None]]:
    found = await page.evaluate(OPEN, {"until": awaited, **more})
    return [(state, problem) for state, problem, _ in found]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_missing_token_is_asked_for_and_then_used(
    open_page: OpenPage, *, is_late: bool
) -> None:
    script = Script(token=SESAME, is_token_checked_late=is_late)
    async with open_page(script) as (page, server):
        assert await states_of(page, "live", tokenLater=SESAME) == [
            ("connecting", None),
            ("token", "token"),
            ("connecting", "token"),
            ("live", None),
        ]
        assert server.protocols[-1] == [f"audiokv.v1, bearer.{SESAME}"]


async def test_a_wrong_token_is_asked_for_again(open_page: OpenPage) -> None:
    async with open_page(Script(token=SESAME)) as (page, _server):
        assert await states_of(page, "token", token=SESAME[1:]) == [
            ("connecting", None),
            ("token", "token"),
        ]


async def test_a_token_that_no_header_can_carry_is_told(open_page: OpenPage) -> None:
    async with open_page(Script(token=SESAME)) as (page, _server):
        assert await states_of(page, "token", token=f"{SESAME} {SESAME}") == [
            ("token", "bad-token")
        ]


async def test_without_a_token_no_subprotocol_is_offered(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await states_of(page, "live")
        assert server.protocols == [[]]


async def test_pauses_grow_while_nobody_answers(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await server.__aexit__(None, None, None)
        found = await page.evaluate(
            """async () => {
              const { Link } = await import("./js/link.js");
              const url = location.href.replace("http", "ws") + "v1/stream";
              const link = new Link({ url, firstRetryMs: 50, maxRetryMs: 300 });
              const pauses = [];
              await new Promise((resolve) => {
                link.addEventListener("state", ({ detail }) => {
                  if (detail.state !== "waiting") return;
                  pauses.push([detail.problem.id, detail.retryInMs]);
                  if (pauses.length === 5) resolve();
                });
                link.open();
              });
              link.end("ended");
              return pauses;
            }"""
        )
        assert {problem for problem, _ in found} == {"unreachable"}
        for (_, pause_ms), wanted_ms in zip(found, [50, 100, 200, 300, 300], strict=True):
            assert wanted_ms * 0.9 <= pause_ms <= wanted_ms * 1.1
        assert server.starts == []


async def test_a_server_that_comes_later_is_found(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        port = server.port
        await server.__aexit__(None, None, None)
        found = asyncio.create_task(states_of(page, "live"))
        await asyncio.sleep(0.3)
        async with ScriptedServer(Script(), port) as again:
            states = await found
            assert states[1] == ("waiting", "unreachable")
            assert len(again.starts) == 1


async def test_an_attempt_without_an_answer_is_given_up(open_page: OpenPage) -> None:
    async def say_nothing(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with open_page(Script()) as (page, _server), serve(say_nothing, "127.0.0.1", 0) as mute:
        port = next(iter(mute.sockets)).getsockname()[1]
        found = await page.evaluate(
            """async ([port]) => {
              const { Link } = await import("./js/link.js");
              const link = new Link({ url: `ws://127.0.0.1:${port}/`, readyTimeoutMs: 100 });
              const seen = [];
              await new Promise((resolve) => {
                link.addEventListener("state", ({ detail }) => {
                  seen.push(detail.state);
                  if (detail.state === "waiting") resolve();
                });
                link.open();
              });
              link.end("ended");
              return seen;
            }""",
            [port],
        )
        assert found == ["connecting", "waiting", "ended"]


@pytest.mark.parametrize("said", ["{", '{"type": "ready"}'])
async def test_what_cannot_be_understood_ends_the_link(open_page: OpenPage, said: str) -> None:
    async def babble(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(said)
        await socket.wait_closed()

    async with open_page(Script()) as (page, server):
        port = server.port
        await server.__aexit__(None, None, None)
        async with serve(babble, "127.0.0.1", port):
            assert (await states_of(page, "failed"))[-1] == ("failed", "bad-server")


async def test_a_binary_or_unknown_message_is_passed_over(open_page: OpenPage) -> None:
    async def chat(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(b"\x00\x01")
        await socket.send('{"type": "weather"}')
        await socket.send('{"type": "ready", "stream": "s-1", "resume_token": "r-1"}')
        await socket.wait_closed()

    async with open_page(Script()) as (page, server):
        port = server.port
        await server.__aexit__(None, None, None)
        async with serve(chat, "127.0.0.1", port):
            assert await states_of(page, "live") == [("connecting", None), ("live", None)]
