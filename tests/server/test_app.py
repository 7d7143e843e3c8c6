from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from audiokv.server.app import WORKER_CHECK_EVERY_S, open_server
from audiokv.server.config import ServerConfig
from audiokv.server.pages import Page
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.messages import Ready, Start, encode
from tests.server.doubles import (
    LoudnessDetector,
    ManualClock,
    ScriptedRecognizer,
    captions_in,
    speech,
    undisturbed,
    until,
)
from tests.server.running import PATIENCE_S, Source, http_get, running_server, stream_url

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.models.base import Hypothesis

TOKEN = "correct-horse"  # noqa: S105  of a test
PAGES = {"/": Page("text/html; charset=utf-8", b"<html>captions</html>")}


# One port


async def test_page_health_and_sockets_share_a_port() -> None:
    async with running_server(pages=PAGES) as server:
        page = await http_get(server, "/")
        assert page.startswith(b"HTTP/1.1 200 OK")
        assert page.endswith(b"<html>captions</html>")
        assert b"Content-Security-Policy: default-src 'none'" in page
        source = await Source.open(server)
        ready = await source.start()
        viewer = await Source.watch(server, ready.stream)
        await viewer.wait_for(Ready)
        health = json.loads((await http_get(server, "/health")).partition(b"\r\n\r\n")[2])
        assert health == {
            "status": "ok",
            "model": "scripted",
            "streams": 1,
            "max_streams": 8,
            "viewers": 1,
            "connections": 3,
            "live_lag_ms": 0,
        }


@pytest.mark.parametrize("path", ["/../app.py", "/..%2f..%2fapp.py", "/index.htm", "/v1/"])
async def test_nothing_but_the_page_is_served(path: str) -> None:
    async with running_server(pages=PAGES) as server:
        assert (await http_get(server, path)).startswith(b"HTTP/1.1 404 ")


async def test_a_large_page_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000
    async with running_server(pages={"/big.png": Page("image/png", body)}) as server:
        answer = await http_get(server, "/big.png")
        assert answer.partition(b"\r\n\r\n")[2] == body


async def test_a_socket_elsewhere_is_not_found() -> None:
    async with running_server() as server:
        with pytest.raises(InvalidStatus) as caught:
            await connect(stream_url(server) + "s")
        assert caught.value.response.status_code == 404


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
async def test_garbage_ends_its_own_connection_only(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(handshake_timeout_s=0.05) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(garbage)
        assert b"HTTP/1.1 2" not in await reader.read()
        writer.close()
        await until(lambda: not server.n_connections)
        source = await Source.open(server)
        await source.start()
    assert "Traceback" not in caplog.text


async def test_a_handshake_that_takes_too_long_is_cut_off() -> None:
    async with running_server(handshake_timeout_s=0.05) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /v1/stream HTTP/1.1\r\n")
        assert await reader.read() == b""
        writer.close()
        await until(lambda: not server.n_connections)


# Who may come in


@pytest.mark.parametrize(
    "options",
    [
        {"additional_headers": {"Authorization": f"Bearer {TOKEN}"}},
        {"subprotocols": ["audiokv.v1", f"bearer.{TOKEN}"]},
        {"subprotocols": [f"bearer.{TOKEN}", "audiokv.v1"]},
    ],
)
async def test_the_token_opens_the_stream(options: dict[str, Any]) -> None:
    async with running_server(token=TOKEN) as server:
        source = await Source.open(server, **options)
        expected = "audiokv.v1" if "subprotocols" in options else None
        assert source.connection.subprotocol == expected
        await source.start()


@pytest.mark.parametrize("opening", [Source.open, lambda s, **o: Source.watch(s, "s-1", **o)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"additional_headers": {"Authorization": "Bearer wrong-token"}},
        {"subprotocols": ["audiokv.v1", "bearer.wrong-token"]},
    ],
)
async def test_without_it_streams_and_viewers_are_closed_with_4401(
    opening: Any, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with running_server(token=TOKEN) as server:
        source = await opening(server, **options)
        assert await source.error() == ("not_authorized", 4401)
        assert server.registry.n_kept == 0
    records = [r.getMessage() for r in caplog.records if r.name.startswith("audiokv")]
    assert not any("wrong-token" in text or TOKEN in text for text in records)


@pytest.mark.parametrize("offered", [["media"], ["audio.drachtio.org", "x"], ["audiokv.v2"]])
async def test_subprotocols_of_others_do_no_harm(offered: list[str]) -> None:
    async with running_server() as server:
        source = await Source.open(server, subprotocols=offered)
        assert source.connection.subprotocol is None
        await source.start()


async def test_a_page_from_elsewhere_is_closed_with_1008() -> None:
    async with running_server() as server:
        source = await Source.open(server, origin="https://evil.example")
        assert await source.error() == ("origin_not_allowed", 1008)


async def test_our_own_page_and_allowed_ones_may_connect() -> None:
    async with running_server(allowed_origins=("https://hall.example",)) as server:
        for origin in (server.page_url.rstrip("/"), "https://hall.example"):
            source = await Source.open(server, origin=origin)
            await source.start()


async def test_tls_and_a_token_together(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.private_key_pem.write_to_path(key)
    for pem in issued.cert_chain_pems:
        pem.write_to_path(cert, append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    audio = speech(1, seconds=1)
    async with running_server(host="localhost", token=TOKEN, tls_cert=cert, tls_key=key) as server:
        assert server.page_url.startswith("https://localhost:")
        header = {"Authorization": f"Bearer {TOKEN}"}
        source = await Source.open(server, ssl=context, additional_headers=header)
        await source.start()
        await source.send_audio(audio)
        await source.connection.send('{"type": "stop"}')
        assert await source.rest() == (1000, "done")
        assert source.captions == captions_in(undisturbed(audio))
        stranger = await Source.open(server, ssl=context)
        assert await stranger.error() == ("not_authorized", 4401)


# Starting and stopping


async def refused(**settings: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        async with running_server(**settings):
            pass
    assert caught.value.remedy
    return caught.value


async def test_a_port_in_use_is_named() -> None:
    async with running_server() as server:
        port = server.port
        error = await refused(port=port)
    assert error.code == "port_in_use"
    assert str(port) in error.message


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    error = await refused(host=host, allow_anonymous=True)
    assert error.code == "bad_host"
    assert host in error.message


@pytest.mark.parametrize("content", [None, b"not a certificate"])
async def test_bad_tls_files_are_named(tmp_path: Path, content: bytes | None) -> None:
    cert = tmp_path / "cert.pem"
    if content is not None:
        cert.write_bytes(content)
    error = await refused(tls_cert=cert, tls_key=cert)
    assert error.code == "bad_tls"
    assert str(cert) in error.message


async def test_on_stopping_everyone_is_closed_with_1001() -> None:
    async with running_server() as server:
        source = await Source.open(server)
        ready = await source.start()
        viewer = await Source.watch(server, ready.stream)
        await viewer.wait_for(Ready)
        waiting = await Source.open(server)
        await source.send_audio(speech(2, seconds=1))
        closing = [asyncio.ensure_future(c.rest()) for c in (source, viewer, waiting)]
    assert await asyncio.gather(*closing) == [(1001, "server going away")] * 3
    assert server.n_connections == 0
    assert server.registry.n_kept == 0


async def test_stopping_takes_a_bounded_time_whatever_clients_and_model_do() -> None:
    recognizer = ScriptedRecognizer()
    recognizer.gate.clear()
    async with running_server(recognizer, shutdown_timeout_s=0.1, max_backlog_ms=1_000) as server:
        source = await Source.open(server)
        await source.start()
        await source.send_audio(speech(3, seconds=5))
        await until(lambda: server.health()["connections"] == 1)
        source.pause_reading()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: server.n_connections == 2)
        await asyncio.to_thread(recognizer.is_asked.wait, PATIENCE_S)
    assert server.n_connections == 0
    assert server.health()["status"] == "ok"  # the model still hangs; the process would end
    recognizer.gate.set()
    writer.close()


async def test_a_port_can_be_used_again_at_once() -> None:
    async with running_server() as server:
        port = server.port
        source = await Source.open(server)
        await source.start()
    async with running_server(port=port) as server:
        assert server.port == port


async def test_addresses_are_written_as_browsers_want_them() -> None:
    async with running_server(host="0.0.0.0", allow_anonymous=True) as server:  # noqa: S104  on purpose
        assert server.page_url == f"http://localhost:{server.port}/"
    if socket.has_ipv6:
        async with running_server(host="::1") as server:
            assert server.page_url == f"http://[::1]:{server.port}/"


def test_everything_works_on_uvloop() -> None:
    audio = speech(4, seconds=2)

    async def main() -> Source:
        config = ServerConfig(port=0, max_lag_ms=600_000)
        async with (
            asyncio.timeout(PATIENCE_S),
            open_server(
                config, recognizer=ScriptedRecognizer(), open_detector=LoudnessDetector
            ) as server,
        ):
            assert (await http_get(server, "/")).startswith(b"HTTP/1.1 200 OK")
            source = await Source.open(server)
            await source.connection.send(encode(Start("pcm_s16le", 16_000)))
            await source.send_audio(audio)
            await source.connection.send('{"type": "stop"}')
            assert await source.rest() == (1000, "done")
            left = await Source.open(server)
            closing = asyncio.ensure_future(left.rest())
        assert await closing == (1001, "server going away")
        return source

    source = uvloop.run(main())
    assert source.captions == captions_in(undisturbed(audio))


async def test_the_death_of_the_worker_is_noticed() -> None:
    class Fatal(BaseException):
        pass

    class Deadly(ScriptedRecognizer):
        def decode(self, _streams: object) -> list[Hypothesis]:
            raise Fatal

    clock = ManualClock()
    async with running_server(Deadly(), clock=clock) as server:
        death = asyncio.ensure_future(server.worker_death())
        await clock.advance(WORKER_CHECK_EVERY_S)
        assert not death.done()
        source = await Source.open(server)
        await source.start()
        await source.send_audio(speech(1, seconds=1))
        await until(lambda: server.health()["status"] == "failed")
        await clock.advance(WORKER_CHECK_EVERY_S)
        await death
    assert (await source.rest())[0] == 1001
