"""The server: one port for the page, the health report and all paths; own ports where asked."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from websockets.asyncio.server import Server

from audiokv.server import http
from audiokv.server.clock import LoopClock, sleep
from audiokv.server.gate import Gate
from audiokv.server.listening import tls_context
from audiokv.server.mqtt.bridge import published
from audiokv.server.pages import load_pages
from audiokv.server.protocols.routes import OWN_PORTS
from audiokv.server.refusals import CloseCode
from audiokv.server.sessions import session_opener
from audiokv.server.stream_registry import StreamRegistry
from audiokv.server.worker import Worker
from audiokv.streaming.speakers import FixedSpeaker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from audiokv.models.base import Recognizer
    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.pages import Page
    from audiokv.server.protocols.tcp import TcpPort
    from audiokv.server.sessions import OpenDetector, OpenSpeaker
    from audiokv.server.telephony.sip import SipPort

logger = logging.getLogger(__name__)

WORKER_CHECK_EVERY_S = 1.0


class CaptionServer:
    """A running server; made by `open_server`.

    Args:
        config: The settings.
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        open_speaker: Gives what tells the speakers of a stream.
        clock: The server's clock.
        pages: Files of the web page by path.
    """

    def __init__(  # noqa: PLR0913  its parts, each by name
        self,
        config: ServerConfig,
        *,
        recognizer: Recognizer,
        open_detector: OpenDetector,
        open_speaker: OpenSpeaker,
        clock: Clock,
        pages: Mapping[str, Page],
    ) -> None:
        self._config = config
        self._clock = clock
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
            open_session=session_opener(
                recognizer, open_detector, config.session_options(), open_speaker
            ),
            clock=clock,
        )
        self._gate = Gate(
            config,
            info=recognizer.info,
            registry=self.registry,
            clock=clock,
            answer=lambda request: http.answer(request, pages, self.health()),
        )
        self._server: Server | None = None
        self._others: dict[str, Server | TcpPort | SipPort] = {}  # by setting

    @property
    def port(self) -> int:
        """The port listened on."""
        sockets = self._server.sockets if self._server is not None else ()
        return int(sockets[0].getsockname()[1])

    @property
    def other_ports(self) -> dict[str, int]:
        """The ports listened on for one protocol each, by the name of their setting."""
        return {
            setting: int(server.sockets[0].getsockname()[1])
            for setting, server in self._others.items()
        }

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
        return self._gate.n_connections

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
        try:
            self._server = await self._gate.listen("port", config.port, None, context)
            for own in OWN_PORTS:
                number = getattr(config, own.setting)
                if number is not None:
                    listen = self._gate.listen if own.is_websocket else self._gate.listen_tcp
                    self._others[own.setting] = await listen(
                        own.setting, number, own.route, context
                    )
            if config.sip_port is not None:
                self._others["sip_port"] = await self._gate.listen_sip("sip_port", config.sip_port)
        except BaseException:
            await self._close_ports()
            raise
        self._worker.start()

    async def worker_death(self) -> None:
        """Wait until the thread that computes has died: no caption will come any more."""
        while self._worker.is_alive:
            await sleep(self._clock, WORKER_CHECK_EVERY_S)

    async def stop(self) -> None:
        """Close every connection with 1001 and end the worker, within a bounded time."""
        self.registry.close()
        await self._close_ports()
        if self._worker.is_alive:
            has_ended = await asyncio.to_thread(self._worker.stop, self._config.shutdown_timeout_s)
            if not has_ended:
                logger.warning("the worker was still in a step when the server ended")

    async def _close_ports(self) -> None:
        limit_s = self._config.shutdown_timeout_s
        closing = []
        for server in (self._server, *self._others.values()):
            if isinstance(server, Server):
                server.close(code=CloseCode.GOING_AWAY, reason="server going away")
            elif server is not None:
                server.close()
            if server is not None:
                closing.append(asyncio.ensure_future(server.wait_closed()))
        if not closing:
            return
        _, still_open = await asyncio.wait(closing, timeout=limit_s)
        if still_open:
            self._gate.abort_all()
            await asyncio.wait(still_open, timeout=limit_s)


@asynccontextmanager
async def open_server(  # noqa: PLR0913  likewise
    config: ServerConfig,
    *,
    recognizer: Recognizer,
    open_detector: OpenDetector,
    open_speaker: OpenSpeaker = FixedSpeaker,
    clock: Clock | None = None,
    pages: Mapping[str, Page] | None = None,
) -> AsyncIterator[CaptionServer]:
    """Run a server inside the running event loop; it is stopped on leaving.

    Args:
        config: The settings.
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
        open_speaker: Gives what tells the speakers of a stream.
        clock: By default the event loop's.
        pages: Files of the web page by path; by default the client's page.

    Raises:
        ConfigError: The port is taken, the address is not ours, the TLS files are bad, or the
            settings of the MQTT broker are.
    """
    clock = clock or LoopClock()
    server = CaptionServer(
        config,
        recognizer=recognizer,
        open_detector=open_detector,
        open_speaker=open_speaker,
        clock=clock,
        pages=load_pages() if pages is None else pages,
    )
    await server.start()
    try:
        async with published(config, server.registry, recognizer.info.name, clock):
            yield server
    finally:
        await server.stop()
