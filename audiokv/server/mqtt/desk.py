"""Devices that speak MQTT: each gets a connection of its own, made of topics."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from websockets.exceptions import ConnectionClosedOK

from audiokv.server.failure_log import log_failure
from audiokv.server.mqtt.unsent import Publication
from audiokv.server.protocols.dialect import Opening
from audiokv.server.protocols.dialogue import DialectDialogue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.protocols.dialect import Dialect
    from audiokv.server.stream_registry import StreamRegistry

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES = 1_048_576
MAX_WAITING_MESSAGES = 8_192
ANSWER_EXPIRY_S = 60


@dataclass(frozen=True, slots=True)
class Open:
    """Open a connection and let its dialect hear a first message; an older one of the key ends."""

    key: str
    dialect: Dialect
    message: str | bytes


@dataclass(frozen=True, slots=True)
class Feed:
    """Let the dialect of a connection hear a message; without a connection, publish an answer."""

    key: str
    message: str | bytes
    otherwise: Publication | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Publish a message."""

    publication: Publication


Order = Open | Feed | Answer


class Route(Protocol):
    """One way in which devices talk over topics, pure: no sockets, no clock.

    What its dialects say is a topic, a line break, and the body of a message (see `addressed`).
    """

    @property
    def subscriptions(self) -> Sequence[str]:
        """Topic filters to listen to."""

    def take(self, topic: str, payload: bytes) -> list[Order] | None:
        """Return what a message asks for, or None when it is not for this route."""

    def sent(self, key: str, topic: str) -> list[Order]:
        """Return what follows from a message that a connection's dialect said."""


def addressed(topic: str, body: bytes) -> bytes:
    """Return a message of a dialect: where it goes, and what it says."""
    return b"%b\n%b" % (topic.encode(), body)


class TopicWire:
    """A connection made of messages that come in by topic.

    Args:
        name: Name of the connection, for the log.
        publish: Takes a topic and a body to be published.
    """

    def __init__(self, name: str, publish: Callable[[str, bytes], None]) -> None:
        self.name = name
        self._publish = publish
        self._waiting: deque[str | bytes] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._is_over = False

    @property
    def is_close_acknowledged(self) -> bool:
        """Whether the connection ended; a device has no way to say so."""
        return self._is_over

    @property
    def is_full(self) -> bool:
        """Whether a device sent far more than is taken from it."""
        return self._waiting_bytes > MAX_WAITING_BYTES or len(self._waiting) > MAX_WAITING_MESSAGES

    def feed(self, message: str | bytes) -> None:
        """Let a message come in."""
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        self._changed.set()

    async def receive(self) -> str | bytes:
        """Return the next message."""
        while True:
            if self._is_over:
                raise ConnectionClosedOK(None, None)
            if self._waiting:
                message = self._waiting.popleft()
                self._waiting_bytes -= len(message)
                return message
            self._changed.clear()
            await self._changed.wait()

    async def send(self, packed: bytes) -> None:
        """Publish a message."""
        if self._is_over:
            raise ConnectionClosedOK(None, None)
        topic, _, body = packed.partition(b"\n")
        self._publish(topic.decode(), body)

    async def close(self, code: int, reason: str) -> None:
        """End the connection; topics have no close code."""
        del code, reason
        self.abort()

    def abort(self) -> None:
        """End the connection."""
        self._is_over = True
        self._changed.set()


class Desk:
    """Opens a dialogue for each device that asks, and hands it what the device sends.

    Full policy: a device that is more than `MAX_WAITING_BYTES` ahead of its stream loses its
    connection; what it sent before is still recognised. How many streams there may be is the
    registry's to say.

    Args:
        routes: The ways in which devices may talk.
        publish: Takes a message for the broker.
        registry: All streams.
        config: The server's settings.
        clock: The server's clock.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        publish: Callable[[Publication], None],
        registry: StreamRegistry,
        config: ServerConfig,
        clock: Clock,
    ) -> None:
        self._routes = routes
        self._publish = publish
        self._registry = registry
        self._config = config
        self._clock = clock
        self._wires: dict[str, TopicWire] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def subscriptions(self) -> list[str]:
        """Topic filters to listen to."""
        return [topic_filter for route in self._routes for topic_filter in route.subscriptions]

    @property
    def n_connections(self) -> int:
        """Devices that are connected."""
        return len(self._wires)

    def receive(self, topic: str, payload: bytes) -> None:
        """Take a message in."""
        for route in self._routes:
            orders = route.take(topic, payload)
            if orders is not None:
                self._obey(route, orders)
                return

    async def close(self) -> None:
        """End every connection."""
        for wire in self._wires.values():
            wire.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _obey(self, route: Route, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case Open():
                    self._open(route, order)
                case Feed():
                    self._feed(order)
                case Answer(publication):
                    self._publish(publication)

    def _open(self, route: Route, order: Open) -> None:
        older = self._wires.pop(order.key, None)
        if older is not None:
            older.abort()

        def publish(topic: str, body: bytes) -> None:
            self._publish(Publication(topic, body, expiry_s=ANSWER_EXPIRY_S))
            if self._wires.get(order.key) is wire:
                self._obey(route, route.sent(order.key, topic))

        wire = TopicWire(f"mqtt {order.key}", publish)
        wire.feed(order.message)
        self._wires[order.key] = wire
        task = asyncio.create_task(self._serve(order, wire), name=wire.name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, order: Open, wire: TopicWire) -> None:
        dialogue = DialectDialogue(
            wire,
            order.dialect,
            Opening(path=order.key),
            registry=self._registry,
            config=self._config,
            clock=self._clock,
        )
        try:
            await dialogue.run()
        except Exception as error:  # noqa: BLE001  the boundary of a connection
            log_failure(logger, wire.name, error)
        finally:
            wire.abort()
            if self._wires.get(order.key) is wire:
                del self._wires[order.key]

    def _feed(self, order: Feed) -> None:
        wire = self._wires.get(order.key)
        if wire is not None:
            wire.feed(order.message)
            if wire.is_full:
                logger.warning("%s sent more than could be taken, and was cut off", wire.name)
                wire.abort()
        elif order.otherwise is not None:
            self._publish(order.otherwise)
