"""The server: one port for the page, the health report and the two WebSocket paths."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from websockets.asyncio.server import Server, ServerConnection, serve

from audiokv.server import http
from audiokv.server.access import (
    AccessRules,
    Credentials,
    choose_subprotocol,
    offered_subprotocols,
)
from audiokv.server.clock import LoopClock, sleep
from audiokv.server.connections import ConnectionTable, CountedConnection, counted
from audiokv.server.failure_log import log_failure
from audiokv.server.outbox import Outbox
from audiokv.server.pages import load_pages
from audiokv.server.protocols.native import SourceDialogue, refuse, serve_viewer
from audiokv.server.refusals import CloseCode, RefusalError, internal_refusal
from audiokv.server.sessions import session_opener
from audiokv.server.stream_registry import RETRY_AFTER_S, StreamRegistry
from audiokv.server.wire import WebSocketWire
from audiokv.server.worker import Worker
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from websockets.http11 import Request, Response
    from websockets.typing import Subprotocol

    from audiokv.models.base import Recognizer
    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.pages import Page
    from audiokv.server.sessions import OpenDetector

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 2.0
WORKER_CHECK_EVERY_S = 1.0
# The transport refuses only what is absurd; what is merely too large gets an error message first.
TRANSPORT_SIZE_FACTOR = 4


class CaptionServer:
    """A running server; made by `open_server`.

    Args:
        config: The settings.
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        clock: The server's clock.
        pages: Files of the web page by path.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        recognizer: Recognizer,
        open_detector: OpenDetector,
        clock: Clock,
        pages: Mapping[str, Page],
    ) -> None:
        self._config = config
        self._clock = clock
        self._pages = pages
        self._access = AccessRules(config)
        self._table = ConnectionTable(config.max_connections_per_ip)
        self._worker = Worker(
            recognizer,
            call_soon=asyncio.get_running_loop().call_soon_threadsafe,
            max_batch=config.max_batch,
        )
        self._info = recognizer.info
        self.registry = StreamRegistry(
            config=config,
            info=recognizer.info,
            worker=self._worker,
            open_session=session_opener(recognizer, open_detector, config.session_options()),
            clock=clock,
        )
        self._server: Server | None = None

    @property
    def port(self) -> int:
        """The port listened on."""
        sockets = self._server.sockets if self._server is not None else ()
        return int(sockets[0].getsockname()[1])

    @property
    def page_url(self) -> str:
        """Address of the web page, as a browser on this machine opens it."""
        scheme = "http" if self._config.tls_cert is None else "https"
        host = self._config.host
        if host in ("0.0.0.0", "::", ""):  # noqa: S104  compared, not bound
            host = "localhost"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def n_connections(self) -> int:
        """Open connections, also those still opening."""
        return len(self._table)

    def health(self) -> dict[str, object]:
        """Return what ``/health`` shows."""
        status = "ok" if self._worker.is_alive else "failed"
        if status == "ok" and self.registry.is_overloaded:
            status = "overloaded"
        return {
            "status": status,
            "model": self._info.name,
            "streams": self.registry.n_streams,
            "max_streams": self._config.max_streams,
            "viewers": self.registry.n_viewers,
            "connections": self.n_connections,
            "live_lag_ms": self.registry.live_lag_ms,
        }

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The port is taken, the address is not ours, or the TLS files are bad.
        """
        config = self._config
        context = tls_context(config)
        transport_logger = logging.getLogger("audiokv.server.transport")
        transport_logger.setLevel(logging.CRITICAL)  # below, it would log what is sent
        try:
            self._server = await serve(
                self._handle,
                config.host,
                config.port,
                compression=None,  # 10 ms of audio does not shrink, captions hardly
                select_subprotocol=self._select_subprotocol,
                process_request=self._process_request,
                server_header="AudioKV",
                open_timeout=config.handshake_timeout_s,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=config.max_message_bytes * TRANSPORT_SIZE_FACTOR,
                logger=transport_logger,
                create_connection=counted(self._table),
                ssl=context,
            )
        except OSError as error:
            raise _cannot_listen(config, error) from error
        self._worker.start()

    async def worker_death(self) -> None:
        """Wait until the thread that computes has died: no caption will come any more."""
        while self._worker.is_alive:
            await sleep(self._clock, WORKER_CHECK_EVERY_S)

    async def stop(self) -> None:
        """Close every connection with 1001 and end the worker, within a bounded time."""
        if self._server is None:
            return
        limit_s = self._config.shutdown_timeout_s
        self.registry.close()
        self._server.close(code=CloseCode.GOING_AWAY, reason="server going away")
        closing = asyncio.ensure_future(self._server.wait_closed())
        await asyncio.wait([closing], timeout=limit_s)
        if not closing.done():
            self._table.abort_all()
            await asyncio.wait([closing], timeout=limit_s)
        has_ended = await asyncio.to_thread(self._worker.stop, limit_s)
        if not has_ended:
            logger.warning("the worker was still in a step when the server ended")

    @staticmethod
    def _select_subprotocol(
        _connection: ServerConnection, offered: Sequence[Subprotocol]
    ) -> Subprotocol | None:
        chosen = choose_subprotocol(offered)
        return next((name for name in offered if name == chosen), None)

    def _process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer plain HTTP; let a WebSocket through to its handler."""
        path = http.path_of(request)
        if http.is_upgrade(request):
            if http.is_socket_path(path):
                return None
            return http.refuse_request(HTTPStatus.NOT_FOUND, "No WebSocket is served here.")
        if isinstance(connection, CountedConnection) and connection.is_over_limit:
            return http.refuse_request(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many connections from your address.",
                {"Retry-After": f"{RETRY_AFTER_S:.0f}"},
            )
        return http.answer(request, self._pages, self.health())

    async def _handle(self, connection: ServerConnection) -> None:
        wire = WebSocketWire(connection)
        try:
            await self._dispatch(connection, wire)
        except Exception as error:  # noqa: BLE001  the boundary of a connection
            log_failure(logger, f"connection {wire.name}", error)
            await self._turn_away(wire, internal_refusal())

    async def _dispatch(self, connection: ServerConnection, wire: WebSocketWire) -> None:
        request = connection.request
        path = "" if request is None else http.path_of(request)
        try:
            self._admit(connection)
        except RefusalError as refusal:
            await self._turn_away(wire, refusal)
            return
        if path == http.STREAM_PATH:
            dialogue = SourceDialogue(
                wire, registry=self.registry, config=self._config, clock=self._clock
            )
            await dialogue.run()
        else:
            name = path.removeprefix(http.WATCH_PREFIX)
            await serve_viewer(wire, name, registry=self.registry, clock=self._clock)

    async def _turn_away(self, wire: WebSocketWire, refusal: RefusalError) -> None:
        outbox = Outbox(wire, self._clock)
        refuse(outbox, refusal)
        await outbox.pump()

    def _admit(self, connection: ServerConnection) -> None:
        if isinstance(connection, CountedConnection) and connection.is_over_limit:
            raise RefusalError(
                CloseCode.FULL,
                "too_many_connections",
                f"Your address has more than {self._table.max_per_ip} connections.",
                "Close some, then try again.",
                retry_after_s=RETRY_AFTER_S,
            )
        request = connection.request
        if request is not None:
            self._access.check(_credentials(request))


def _credentials(request: Request) -> Credentials:
    headers = request.headers
    return Credentials(
        authorization=next(iter(headers.get_all("Authorization")), None),
        subprotocols=offered_subprotocols(headers.get_all("Sec-WebSocket-Protocol")),
        origin=next(iter(headers.get_all("Origin")), None),
        host=next(iter(headers.get_all("Host")), None),
    )


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Return the TLS settings, or None when the server speaks plain text.

    Raises:
        ConfigError: The certificate or key cannot be used.
    """
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except OSError as error:
        raise ConfigError(
            "bad_tls",
            f"The TLS files {config.tls_cert} and {config.tls_key} cannot be used: {error}.",
            "Name a PEM certificate and the key that belongs to it.",
        ) from error
    return context


def _cannot_listen(config: ServerConfig, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            "port_in_use",
            f"Port {config.port} of {config.host} is in use.",
            "Stop the other program, or choose another with --port.",
        )
    if error.errno == errno.EACCES:
        return ConfigError(
            "port_not_allowed",
            f"Port {config.port} may not be used by this account.",
            "Choose a port above 1023 with --port.",
        )
    reason = error.strerror or str(error)
    what = "name" if isinstance(error, socket.gaierror) else "address"
    return ConfigError(
        "bad_host",
        f"The {what} {config.host!r} cannot be listened on: {reason}.",
        "Choose an address of this machine with --host.",
    )


@asynccontextmanager
async def open_server(
    config: ServerConfig,
    *,
    recognizer: Recognizer,
    open_detector: OpenDetector,
    clock: Clock | None = None,
    pages: Mapping[str, Page] | None = None,
) -> AsyncIterator[CaptionServer]:
    """Run a server inside the running event loop; it is stopped on leaving.

    Args:
        config: The settings.
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        clock: By default the event loop's.
        pages: Files of the web page by path; by default the client's page.

    Raises:
        ConfigError: The port is taken, the address is not ours, or the TLS files are bad.
    """
    server = CaptionServer(
        config,
        recognizer=recognizer,
        open_detector=open_detector,
        clock=clock or LoopClock(),
        pages=load_pages() if pages is None else pages,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
