"""A running server with scripted parts, and a client that is not ours."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from audiokv.server.app import CaptionServer, open_server
from audiokv.server.config import ServerConfig
from audiokv.streaming.messages import (
    Caption,
    ErrorReport,
    Ready,
    Resume,
    ServerMessage,
    Start,
    Stop,
    decode_server,
    encode,
)
from tests.server.doubles import (
    NEVER_MERGE_MS,
    LoudnessDetector,
    ScriptedRecognizer,
    captions_in,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from audiokv.models.base import Recognizer
    from audiokv.server.clock import Clock
    from audiokv.server.pages import Page

_T = TypeVar("_T")

PATIENCE_S = 20  # a limit for tests that hang, never a wait


@asynccontextmanager
async def running_server(
    recognizer: Recognizer | None = None,
    *,
    clock: Clock | None = None,
    pages: dict[str, Page] | None = None,
    patience_s: float = PATIENCE_S,
    **settings: Any,
) -> AsyncIterator[CaptionServer]:
    """Run a server on a free port."""
    config = ServerConfig(**{"port": 0, "max_lag_ms": NEVER_MERGE_MS, **settings})
    async with (
        asyncio.timeout(patience_s),
        open_server(
            config,
            recognizer=recognizer or ScriptedRecognizer(),
            open_detector=LoudnessDetector,
            clock=clock,
            pages=pages or {},
        ) as server,
    ):
        yield server


def stream_url(server: CaptionServer) -> str:
    return server.page_url.replace("http", "ws", 1) + "v1/stream"


def watch_url(server: CaptionServer, stream: str) -> str:
    return server.page_url.replace("http", "ws", 1) + f"v1/watch/{stream}"


async def http_get(server: CaptionServer, path: str, *lines: str, method: str = "GET") -> bytes:
    """Return the raw answer to an HTTP request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]
    writer.write("\r\n".join(request).encode())
    answer = await reader.read()
    writer.close()
    return answer


def shrink_buffers(server: CaptionServer) -> None:
    """Let the kernel hold little of what later connections are sent."""
    assert server._server is not None
    for listening in server._server.sockets:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)


async def small_socket(server: CaptionServer) -> socket.socket:
    """Return a connected socket for which the kernel holds little."""
    connecting = socket.socket()
    connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connecting.setblocking(False)  # noqa: FBT003  the library's signature
    await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", server.port))
    return connecting


class Source:
    """A source that talks to the server through the websockets library's own client."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: list[ServerMessage] = []

    @classmethod
    async def open(cls, server: CaptionServer, **options: Any) -> Source:
        return cls(await connect(stream_url(server), compression=None, **options))

    @classmethod
    async def watch(cls, server: CaptionServer, stream: str, **options: Any) -> Source:
        return cls(await connect(watch_url(server, stream), compression=None, **options))

    async def start(self, **changes: Any) -> Ready:
        await self.send(Start("pcm_s16le", 16_000, **changes))
        return await self.wait_for(Ready)

    async def resume(self, token: str | None, last_seq: int) -> Ready:
        return await self.start(resume=Resume(token or "", last_seq))

    async def send(self, message: Start | Stop | Any) -> None:
        await self.connection.send(encode(message))

    async def send_audio(self, audio: bytes, *, message_bytes: int = 3_200) -> None:
        for start in range(0, len(audio), message_bytes):
            await self.connection.send(audio[start : start + message_bytes])

    async def next(self) -> ServerMessage:
        message = decode_server(str(await self.connection.recv()))
        self.heard.append(message)
        return message

    async def wait_for(self, kind: type[_T], test: Callable[[_T], bool] = lambda _: True) -> _T:
        while True:
            message = await self.next()
            if isinstance(message, kind) and test(message):
                return message

    def pause_reading(self) -> None:
        """Take nothing in from now on, and answer nothing."""
        transport = self.connection.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    @property
    def captions(self) -> list[Caption]:
        return captions_in(self.heard)

    async def error(self) -> tuple[str, int | None]:
        """Listen until the server closes; return the code of its error and of the close."""
        close_code, _ = await self.rest()
        (error,) = (message for message in self.heard if isinstance(message, ErrorReport))
        assert error.message
        return error.code, close_code

    async def rest(self) -> tuple[int | None, str | None]:
        """Listen until the server closes; return code and reason."""
        with suppress(ConnectionClosed):
            while True:
                await self.next()
        return self.connection.close_code, self.connection.close_reason


async def has_streams(server: CaptionServer, n_streams: int, *, n_kept: int) -> None:
    """Wait until the server recognises and keeps so many streams."""
    registry = server.registry
    await until(lambda: (registry.n_streams, registry.n_kept) == (n_streams, n_kept))


async def has_no_connections(server: CaptionServer) -> None:
    """Wait until every connection is gone."""
    await until(lambda: not server.n_connections)


async def complete(source: Source, audio: bytes) -> None:
    """Send the rest of a stream and hear its end."""
    await source.send_audio(audio)
    await source.send(Stop())
    assert await source.rest() == (1000, "done")
