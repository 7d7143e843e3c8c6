from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from audiokv.streaming.errors import ConfigError
from tests.server.doubles import speech, until
from tests.server.running import Source, http_get, running_server

if TYPE_CHECKING:
    from audiokv.server.app import CaptionServer

TOKEN = "correct-horse"  # noqa: S105  of a test
LISTEN = "/v1/listen?encoding=linear16&sample_rate=16000"
OWN_PORTS = ("vosk_port", "whisperlive_port", "wyoming_port")


def address(server: CaptionServer, path: str) -> str:
    return f"ws://127.0.0.1:{server.port}{path}"


async def status_of(url: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, **options)
    return caught.value.response.status_code


async def test_foreign_paths_share_the_main_port() -> None:
    async with running_server() as server:
        async with connect(address(server, LISTEN)) as client:
            await client.send(speech(1, seconds=1))
            await client.send('{"type":"CloseStream"}')
            messages = [json.loads(message) async for message in client]
        assert [m["type"] for m in messages] == ["Results", "Metadata"]
        source = await Source.open(server)
        await source.start()
        assert (await http_get(server, "/v1/listen")).startswith(b"HTTP/1.1 426 ")


@pytest.mark.parametrize(
    "options",
    [
        {"additional_headers": {"Authorization": f"Token {TOKEN}"}},
        {"additional_headers": {"Authorization": f"Bearer {TOKEN}"}},
        {"subprotocols": ["token", TOKEN]},
        {"subprotocols": ["bearer", TOKEN]},
    ],
)
async def test_the_token_opens_a_foreign_path(options: dict[str, Any]) -> None:
    async with (
        running_server(token=TOKEN) as server,
        connect(address(server, LISTEN), **options) as client,
    ):
        assert client.subprotocol == options.get("subprotocols", [None])[0]
        await client.send('{"type":"CloseStream"}')
        assert json.loads(await client.recv())["type"] == "Metadata"


async def test_a_browser_opens_an_openai_session() -> None:
    offered: Any = ["realtime", f"openai-insecure-api-key.{TOKEN}", "openai-beta.realtime-v1"]
    async with (
        running_server(token=TOKEN) as server,
        connect(address(server, "/v1/realtime"), subprotocols=offered) as client,
    ):
        assert client.subprotocol == "realtime"
        event = json.loads(await client.recv())
        assert event["type"] == "transcription_session.created"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"additional_headers": {"Authorization": "Token wrong"}},
        {"additional_headers": {"Authorization": TOKEN}},
        {"subprotocols": ["token", "wrong"]},
        {"subprotocols": [TOKEN, "token"]},
    ],
)
@pytest.mark.parametrize("path", [LISTEN, "/v1/realtime"])
async def test_without_it_the_handshake_is_refused(path: str, options: dict[str, Any]) -> None:
    async with running_server(token=TOKEN) as server:
        assert await status_of(address(server, path), **options) == 401


async def test_pages_of_others_are_refused_at_the_handshake() -> None:
    async with running_server() as server:
        assert await status_of(address(server, LISTEN), origin="http://evil.test") == 403


async def test_too_many_connections_are_refused_at_the_handshake() -> None:
    async with running_server(max_connections_per_ip=1) as server:
        await Source.open(server)
        assert await status_of(address(server, LISTEN)) == 503


async def test_an_address_that_is_too_long_is_answered() -> None:
    query = "&".join(f"p{i}=1" for i in range(300))
    async with (
        running_server() as server,
        connect(address(server, f"/v1/listen?{query}")) as client,
    ):
        await client.wait_closed()
        assert client.close_code == 4400


async def test_own_ports_are_closed_unless_asked_for() -> None:
    async with running_server() as server:
        assert server.other_ports == {}
    settings: dict[str, Any] = dict.fromkeys(OWN_PORTS, 0)
    async with running_server(**settings) as server:
        assert set(server.other_ports) == set(OWN_PORTS)
        assert len({server.port, *server.other_ports.values()}) == 4


async def test_an_own_websocket_port_speaks_its_protocol_at_every_path_and_no_http() -> None:
    async with running_server(vosk_port=0) as server:
        port = server.other_ports["vosk_port"]
        for path in ("", "/v1/stream", "/x?y=1"):
            async with connect(f"ws://127.0.0.1:{port}{path}") as client:
                await client.send(b"\0\0")
                assert json.loads(await client.recv()) == {"partial": ""}
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 426 ")
        writer.close()


async def test_an_own_websocket_port_asks_for_the_token() -> None:
    async with running_server(vosk_port=0, token=TOKEN) as server:
        url = f"ws://127.0.0.1:{server.other_ports['vosk_port']}"
        assert await status_of(url) == 401
        async with connect(url, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            await client.send('{"eof" : 1}')
            assert json.loads(await client.recv()) == {"text": ""}


@pytest.mark.parametrize("setting", OWN_PORTS)
async def test_a_port_that_is_taken_is_named_and_nothing_stays_open(setting: str) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    number = taken.sockets[0].getsockname()[1]
    settings: dict[str, Any] = {setting: number}
    with pytest.raises(ConfigError, match=str(number)) as caught:
        async with running_server(**settings):
            pass
    assert f"--{setting.replace('_', '-')}" in caught.value.remedy
    taken.close()


async def test_stopping_the_server_ends_every_connection() -> None:
    async with running_server(vosk_port=0, wyoming_port=0) as server:
        foreign = await connect(address(server, LISTEN))
        vosk = await connect(f"ws://127.0.0.1:{server.other_ports['vosk_port']}")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.other_ports["wyoming_port"]
        )
        await until(lambda: server.n_connections == 3)
    for client in (foreign, vosk):
        await client.wait_closed()
        assert client.close_code == 1001
    assert await reader.read() == b""
    writer.close()
