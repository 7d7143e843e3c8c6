"""Who comes in at which port, and which protocol is spoken there."""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from websockets.asyncio.server import Server, ServerConnection, serve

from audiokv.server import http
from audiokv.server.access import AccessRules, choose_subprotocol
from audiokv.server.connections import ConnectionTable, CountedConnection, counted
from audiokv.server.failure_log import log_failure
from audiokv.server.listening import cannot_listen, credentials_of, opening_of
from audiokv.server.outbox import Outbox
from audiokv.server.protocols.dialect import Opening
from audiokv.server.protocols.dialogue import DialectDialogue
from audiokv.server.protocols.native import SourceDialogue, refuse, serve_viewer
from audiokv.server.protocols.routes import Route, find_route
from audiokv.server.protocols.tcp import TcpPort
from audiokv.server.refusals import CloseCode, RefusalError, as_refusal, internal_refusal
from audiokv.server.stream_refusals import RETRY_AFTER_S
from audiokv.server.wire import WebSocketWire
from audiokv.streaming.errors import AudioKVError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext

    from websockets.http11 import Request, Response
    from websockets.typing import Subprotocol

    from audiokv.models.base import RecognizerInfo
    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.protocols.dialect import Dialect
    from audiokv.server.stream_registry import StreamRegistry
    from audiokv.server.telephony.sip import SipPort
    from audiokv.server.wire import Wire

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 2.0
# The transport refuses only what is absurd; what is merely too large gets an error message first.
TRANSPORT_SIZE_FACTOR = 4


class Gate:
    """Opens ports and serves the connections that come in there.

    Args:
        config: The server's settings.
        info: What the recogniser can do.
        registry: All streams.
        clock: The server's clock.
        answer: Gives the response to plain HTTP on the main port.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        info: RecognizerInfo,
        registry: StreamRegistry,
        clock: Clock,
        answer: Callable[[Request], Response],
    ) -> None:
        self._config = config
        self._info = info
        self._registry = registry
        self._clock = clock
        self._answer = answer
        self._access = AccessRules(config)
        self._table = ConnectionTable(config.max_connections_per_ip)

    @property
    def n_connections(self) -> int:
        """Open connections, also those still opening."""
        return len(self._table)

    def abort_all(self) -> None:
        """Cut every connection off."""
        self._table.abort_all()

    async def listen(
        self, setting: str, port: int, route: Route | None, context: SSLContext | None
    ) -> Server:
        """Listen for WebSockets.

        Args:
            setting: Name of the setting with the port's number.
            port: The port; 0 takes a free one.
            route: The protocol, or None where the path says which.
            context: The TLS settings, or None.

        Raises:
            ConfigError: The port cannot be listened on.
        """
        config = self._config
        transport_logger = logging.getLogger("audiokv.server.transport")
        transport_logger.setLevel(logging.CRITICAL)  # below, it would log what is sent
        try:
            return await serve(
                partial(self._handle, route),
                config.host,
                port,
                compression=None,  # 10 ms of audio does not shrink, captions hardly
                select_subprotocol=partial(_select_subprotocol, route),
                process_request=partial(self._process_request, route),
                server_header="AudioKV",
                open_timeout=config.handshake_timeout_s,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=config.max_message_bytes * TRANSPORT_SIZE_FACTOR,
                logger=transport_logger,
                create_connection=counted(self._table),
                ssl=context,
            )
        except OSError as error:
            raise cannot_listen(config.host, port, setting, error) from error

    async def listen_tcp(
        self, setting: str, port: int, route: Route, context: SSLContext | None
    ) -> TcpPort:
        """Listen for plain TCP connections of one protocol; arguments as of `listen`.

        Raises:
            ConfigError: The port cannot be listened on.
        """
        opening = Opening(
            model=self._info.name,
            languages=self._info.languages,
            pause_ms=self._config.pause_ms,
        )
        converse = partial(self._converse, route, opening)
        tcp_port = TcpPort(
            converse,
            table=self._table,
            logger=logger,
            max_message_bytes=self._config.max_message_bytes,
        )
        try:
            await tcp_port.listen(self._config.host, port, context)
        except OSError as error:
            raise cannot_listen(self._config.host, port, setting, error) from error
        return tcp_port

    async def listen_sip(self, setting: str, port: int) -> SipPort:
        """Listen for calls by SIP; arguments as of `listen`.

        Raises:
            ConfigError: The port cannot be listened on, or the library is missing.
        """
        config = self._config
        try:
            from audiokv.server.telephony.sip import SipPort  # noqa: PLC0415  an optional extra
        except ImportError as error:
            raise ConfigError(
                "missing_extra",
                f"{setting} needs the libraries aiosipua and av.",
                "Install it with: pip install 'audiokv[sip]'.",
            ) from error
        sip_port = SipPort(
            self._serve_dialect,
            has_room=self._has_room,
            allowed=config.sip_allow,
            clock=self._clock,
        )
        try:
            await sip_port.listen(config.host, port)
        except OSError as error:
            raise cannot_listen(config.host, port, setting, error) from error
        return sip_port

    def _has_room(self) -> bool:
        is_free = self._registry.n_streams < self._config.max_streams
        return is_free and not self._registry.is_overloaded

    def _process_request(
        self, own: Route | None, connection: ServerConnection, request: Request
    ) -> Response | None:
        """Answer plain HTTP; let a WebSocket through to its handler."""
        path = http.path_of(request)
        route = own or find_route(path)
        if http.is_upgrade(request):
            if route is not None:
                return self._refuse_foreign(route, connection, request)
            if http.is_socket_path(path):
                return None
            return http.refuse_request(HTTPStatus.NOT_FOUND, "No WebSocket is served here.")
        if isinstance(connection, CountedConnection) and connection.is_over_limit:
            return http.refuse_request(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Too many connections from your address.",
                {"Retry-After": f"{RETRY_AFTER_S:.0f}"},
            )
        if own is not None:
            return http.ask_for_upgrade()
        return self._answer(request)

    def _refuse_foreign(
        self, route: Route, connection: ServerConnection, request: Request
    ) -> Response | None:
        """Refuse a client of a foreign protocol as its own server would: before the handshake."""
        try:
            self._check_number(connection)
            if not route.checks_clients:
                self._access.check(credentials_of(request))
        except RefusalError as refusal:
            return http.refuse_handshake(refusal)
        return None

    async def _handle(self, own: Route | None, connection: ServerConnection) -> None:
        wire = WebSocketWire(connection)
        try:
            await self._dispatch(own, connection, wire)
        except Exception as error:  # noqa: BLE001  the boundary of a connection
            log_failure(logger, f"connection {wire.name}", error)
            await self._turn_away(wire, internal_refusal())

    async def _dispatch(
        self, own: Route | None, connection: ServerConnection, wire: WebSocketWire
    ) -> None:
        request = connection.request
        path = "" if request is None else http.path_of(request)
        route = own or find_route(path)
        try:
            if request is not None and route is not None:
                await self._converse(route, opening_of(request, self._info, self._config), wire)
                return
            self._check_number(connection)
            if request is not None:
                self._access.check(credentials_of(request))
        except AudioKVError as error:
            await self._turn_away(wire, as_refusal(error))
            return
        if path == http.STREAM_PATH:
            dialogue = SourceDialogue(
                wire, registry=self._registry, config=self._config, clock=self._clock
            )
            await dialogue.run()
        else:
            name = path.removeprefix(http.WATCH_PREFIX)
            await serve_viewer(wire, name, registry=self._registry, clock=self._clock)

    async def _converse(self, route: Route, opening: Opening, wire: Wire) -> None:
        await self._serve_dialect(route.make(self._config), wire, opening)

    async def _serve_dialect(
        self, dialect: Dialect, wire: Wire, opening: Opening | None = None
    ) -> None:
        dialogue = DialectDialogue(
            wire,
            dialect,
            opening or Opening(),
            registry=self._registry,
            config=self._config,
            clock=self._clock,
        )
        await dialogue.run()

    async def _turn_away(self, wire: WebSocketWire, refusal: RefusalError) -> None:
        outbox = Outbox(wire, self._clock)
        refuse(outbox, refusal)
        await outbox.pump()

    def _check_number(self, connection: ServerConnection) -> None:
        if isinstance(connection, CountedConnection) and connection.is_over_limit:
            raise RefusalError(
                CloseCode.FULL,
                "too_many_connections",
                f"Your address has more than {self._table.max_per_ip} connections.",
                "Close some, then try again.",
                retry_after_s=RETRY_AFTER_S,
            )


def _select_subprotocol(
    own: Route | None, connection: ServerConnection, offered: Sequence[Subprotocol]
) -> Subprotocol | None:
    route = own or (connection.request and find_route(http.path_of(connection.request)))
    chosen = choose_subprotocol(offered, *([route.subprotocols] if route else []))
    return next((name for name in offered if name == chosen), None)
