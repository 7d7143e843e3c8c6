"""A server that speaks the native protocol and says what a test wrote down, when it is due.

It serves the page too. It can cut connections without a word, forget streams, be away for a while,
ask for a token and be full.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.client.web.script import BLANK, PROGRESS_MS, Message, Script, StreamRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from websockets.typing import Subprotocol

WEB_FOLDER = Path(__file__).resolve().parents[3] / "audiokv" / "client" / "web"


class ScriptedServer:
    """Use as an asynchronous context manager; ``url`` is the page."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self.script = script
        self.streams: list[StreamRecord] = []
        self.starts: list[Message] = []
        self.protocols: list[list[str]] = []
        self._port = port
        self._cuts = list(script.cut_at_ms)
        self._away_until = 0.0
        self._viewers: set[ServerConnection] = set()
        self._server: Server
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._handle,
            "127.0.0.1",
            self._port,
            process_request=self._process_request,
            select_subprotocol=_select_subprotocol,
            compression=None,
            close_timeout=1,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Port listened on."""
        return int(next(iter(self._server.sockets)).getsockname()[1])

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def stream(self) -> StreamRecord:
        """The newest stream."""
        return self.streams[-1]

    async def wait_for(self, is_so: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Wait until something is so; looked at after each message that arrives.

        Raises:
            TimeoutError: It is still not so after ``timeout_s``.
        """
        async with asyncio.timeout(timeout_s):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def heard(self, ms: int) -> None:
        """Wait until the newest stream holds so much audio."""
        await self.wait_for(lambda: bool(self.streams) and self.stream.received_ms >= ms)

    async def say(self, message: Message) -> None:
        """Send a message to every viewer."""
        for viewer in list(self._viewers):
            await viewer.send(json.dumps(message))

    async def cut_viewers(self) -> None:
        """Cut every viewer's connection without a word."""
        for viewer in list(self._viewers):
            viewer.transport.abort()

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        if path.startswith("/v1/"):
            if asyncio.get_running_loop().time() < self._away_until:
                connection.transport.abort()
                return connection.respond(HTTPStatus.BAD_GATEWAY, "away")
            if self.script.is_token_checked_late or _has_token(request, self.script.token):
                return None
            return connection.respond(HTTPStatus.UNAUTHORIZED, "no or wrong token")
        return _file_response(connection, path)

    async def _handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.protocols.append(socket.request.headers.get_all("Sec-WebSocket-Protocol"))
        try:
            if not _has_token(socket.request, self.script.token):
                await socket.close(4401, "token")
            elif socket.request.path.startswith("/v1/watch/"):
                await self._watch(socket)
            else:
                await self._stream(socket)
        except ConnectionClosed:
            pass

    async def _watch(self, socket: ServerConnection) -> None:
        name = socket.request.path.rpartition("/")[2] if socket.request else ""
        stream = next((s for s in self.streams if s.name == name), None)
        if stream is None:
            await _fail(socket, {"code": "unknown_stream", "message": "No such stream."}, 4400)
            return
        if self.script.watch_error:
            await _fail(socket, *self.script.watch_error)
            return
        told = {"metadata": stream.metadata} if stream.metadata else {}
        await socket.send(json.dumps({"type": "ready", "version": 1, "stream": name, **told}))
        for caption in stream.sent:
            if caption["final"]:
                await socket.send(json.dumps(caption))
        self._viewers.add(socket)
        try:
            await socket.wait_closed()
        finally:
            self._viewers.discard(socket)

    async def _stream(self, socket: ServerConnection) -> None:
        start = json.loads(await socket.recv())
        self.starts.append(start)
        if self.script.n_full > 0:
            self.script.n_full -= 1
            full = {"code": "full", "message": "All places are taken."}
            await _fail(socket, {**full, "retry_after_s": self.script.retry_after_s}, 1013)
            return
        stream = await self._open(socket, start)
        if stream is None:
            return
        async for payload in socket:
            self._news.set()
            if isinstance(payload, str):
                control = json.loads(payload)
                stream.controls.append(control)
                if control["type"] == "stop":
                    await self._finish(socket, stream)
                    return
                continue
            stream.audio.extend(payload)
            stream.sizes.append(len(payload))
            stream.arrivals_s.append(asyncio.get_running_loop().time())
            if self._cuts and stream.received_ms >= self._cuts[0]:
                self._cut(socket, stream)
                return
            if not await self._goes_on(socket, stream):
                return

    async def _open(self, socket: ServerConnection, start: Message) -> StreamRecord | None:
        resume = start.get("resume")
        if resume is None:
            stream = StreamRecord(f"s-{len(self.streams)}", start)
            self.streams.append(stream)
        elif self.script.is_forgetful:
            await _fail(socket, {"code": "unknown_resume", "message": "Not known."}, 4400)
            return None
        else:
            stream = next(s for s in self.streams if f"r-{s.name}" == resume["token"])
        ready: Message = {"type": "ready", "version": 1, "stream": stream.name}
        ready |= {"resume_token": f"r-{stream.name}", "resumed": resume is not None}
        ready |= {"received_samples": stream.n_samples, "languages": ["de", "en", "ja"]}
        limits = {"max_message_bytes": 65536}
        limits["max_unacknowledged_ms"] = self.script.unacknowledged_ms
        await socket.send(json.dumps({**ready, "limits": limits}))
        for caption in stream.sent:
            if resume and caption["seq"] > resume["last_seq"]:
                await socket.send(json.dumps(caption))
        return stream

    def _cut(self, socket: ServerConnection, stream: StreamRecord) -> None:
        self._cuts.pop(0)
        n_lost = self.script.lost_ms * int(stream.start["sample_rate"]) // 1000
        del stream.audio[2 * max(stream.n_acknowledged, stream.n_samples - n_lost) :]
        self._away_until = asyncio.get_running_loop().time() + self.script.away_s
        socket.transport.abort()

    async def _goes_on(self, socket: ServerConnection, stream: StreamRecord) -> bool:
        if self.script.is_mute:
            return True
        await self._say_due(socket, stream, stream.received_ms)
        if stream.received_ms < stream.next_progress_ms:
            return True
        stream.next_progress_ms = stream.received_ms + PROGRESS_MS
        if self.script.error and self.script.n_errors > 0:
            self.script.n_errors -= 1
            await _fail(socket, *self.script.error)
            return False
        stream.n_acknowledged = stream.n_samples
        progress: Message = {"type": "progress", "received_ms": stream.received_ms}
        progress |= {"received_samples": stream.n_samples, "lag_ms": 120}
        progress["processed_ms"] = max(0, stream.received_ms - 120)
        if self.script.cache is not None:
            progress["cache"] = self.script.cache
        await socket.send(json.dumps(progress))
        return True

    async def _say_due(self, socket: ServerConnection, stream: StreamRecord, now_ms: float) -> None:
        is_first = stream is self.streams[0]
        script = self.script.captions if is_first else self.script.later_captions
        while stream.n_said < len(script):
            due_ms, caption = script[stream.n_said]
            if due_ms > now_ms:
                return
            stream.n_said += 1
            message = {**BLANK, "seq": stream.n_said, **caption}
            stream.sent.append(message)
            await socket.send(json.dumps(message))
            await self.say(message)

    async def _finish(self, socket: ServerConnection, stream: StreamRecord) -> None:
        await self._say_due(socket, stream, float("inf"))
        stream.is_done = True
        done = {"type": "done", "received_ms": stream.received_ms, "segments": 1}
        await socket.send(json.dumps(done))
        await self.say(done)
        await socket.close(1000, "done")


async def _fail(socket: ServerConnection, error: Message, code: int) -> None:
    await socket.send(json.dumps({"type": "error", "remedy": "", **error}))
    await socket.close(code, str(error["code"]))


def _has_token(request: Request, token: str) -> bool:
    if not token:
        return True
    offered = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    return f"bearer.{token}" in offered or (
        request.headers.get("Authorization") == f"Bearer {token}"
    )


def _select_subprotocol(
    _connection: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    return next((p for p in offered if p == "audiokv.v1"), None)


def _file_response(connection: ServerConnection, path: str) -> Response:
    file = (WEB_FOLDER / (path.lstrip("/") or "index.html")).resolve()
    if not file.is_relative_to(WEB_FOLDER) or not file.is_file():
        return connection.respond(HTTPStatus.NOT_FOUND, "not found")
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = Headers({"Content-Type": kind, "Connection": "close"})
    body = file.read_bytes()
    headers["Content-Length"] = str(len(body))
    return Response(HTTPStatus.OK, "OK", headers, body)
