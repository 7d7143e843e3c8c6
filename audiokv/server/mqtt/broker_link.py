"""The connection to the broker: made again whenever it is lost, never in the way of captions."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Protocol

from aiomqtt import Client, Message, MqttError, ProtocolVersion, Will
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from audiokv.server.clock import sleep
from audiokv.server.failure_log import log_failure
from audiokv.server.mqtt.broker import explain
from audiokv.server.mqtt.unsent import Publication, UnsentQueue

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Sequence

    from audiokv.server.clock import Clock
    from audiokv.server.mqtt.broker import Broker

logger = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 10.0
KEEPALIVE_S = 15
OPERATION_TIMEOUT_S = 10.0
MAX_IN_FLIGHT = 16
MAX_QUEUED_INCOMING = 4_096
MIN_FAILURE_CODE = 0x80


class Correspondent(Protocol):
    """What is said on each new connection, and who reads what comes."""

    @property
    def will(self) -> Publication:
        """What the broker publishes when the connection is lost without a farewell."""

    @property
    def subscriptions(self) -> Sequence[str]:
        """Topic filters to listen to."""

    def greeting(self) -> list[Publication]:
        """Return what to publish first on a new connection."""

    def farewell(self) -> list[Publication]:
        """Return what to publish last before the connection is closed."""

    def receive(self, topic: str, payload: bytes, *, is_retained: bool) -> None:
        """Take a message in; raises nothing."""


class BrokerLink:
    """Sends what is put, in order; what must arrive waits while the broker is away.

    Args:
        broker: The broker.
        identifier: Client identifier; the same on each connection, so that a new connection ends
            an older one at once, with its last will, instead of after its keepalive time.
        correspondent: Speaks and listens on the connection.
        clock: Measures the pauses between attempts.
        unsent: What waits; by default a queue of the usual bounds.

    Raises:
        ConfigError: The TLS settings cannot be used.
    """

    def __init__(
        self,
        broker: Broker,
        identifier: str,
        correspondent: Correspondent,
        clock: Clock,
        unsent: UnsentQueue | None = None,
    ) -> None:
        self._broker = broker
        self._identifier = identifier
        self._correspondent = correspondent
        self._clock = clock
        self._tls: ssl.SSLContext | None = broker.tls_context()
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._reported = ""
        self._n_dropped_reported = 0
        self.unsent = UnsentQueue() if unsent is None else unsent
        self.connected = asyncio.Event()  # set while the broker listens

    @property
    def is_connected(self) -> bool:
        """Whether the broker listens."""
        return self.connected.is_set()

    def put(self, publication: Publication) -> None:
        """Publish a message that must arrive; never waits."""
        self.unsent.put(publication)
        self._wake.set()

    def put_partial(self, publication: Publication) -> None:
        """Publish a message that only counts now; never waits."""
        if self.is_connected:
            self.unsent.put_partial(publication)
            self._wake.set()

    def close(self) -> None:
        """Let `run` send what waits and the farewell, when it can, and return."""
        self._closing.set()
        self._wake.set()

    async def run(self) -> None:
        """Keep a connection until `close`; whatever the broker does, only a log line tells."""
        retry_s = FIRST_RETRY_S
        while not self._closing.is_set():
            began_s = self._clock.now_s()
            try:
                async with self._client() as client:
                    await self._greet(client)
                    await self._first_of(self._send(client), self._listen(client))
            except MqttError as error:
                self._report(error)
            except Exception as error:  # noqa: BLE001  the boundary of a connection
                log_failure(logger, "the connection to the broker", error)
            finally:
                self.connected.clear()
                self.unsent.forget_partials()
            if self._clock.now_s() - began_s > LONGEST_RETRY_S:
                retry_s = FIRST_RETRY_S  # it was a good connection, not one that is always ended
            await self._first_of(sleep(self._clock, retry_s), self._closing.wait())
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)
        if len(self.unsent):
            logger.warning("%d messages never reached the broker", len(self.unsent))

    def _client(self) -> Client:
        will = self._correspondent.will
        client = Client(
            self._broker.host,
            self._broker.port,
            username=self._broker.user,
            password=self._broker.password,
            identifier=self._identifier,
            protocol=ProtocolVersion.V5,
            clean_start=True,
            keepalive=KEEPALIVE_S,
            timeout=OPERATION_TIMEOUT_S,
            will=Will(will.topic, will.payload, will.qos, will.is_retained),
            max_queued_incoming_messages=MAX_QUEUED_INCOMING,
            max_inflight_messages=MAX_IN_FLIGHT,
            tls_context=self._tls,
            # Else the kernel holds a message back until the one before it was acknowledged.
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            logger=_silent_logger(),
        )
        client.pending_calls_threshold = MAX_IN_FLIGHT
        return client

    async def _greet(self, client: Client) -> None:
        for topic_filter in self._correspondent.subscriptions:
            granted = await client.subscribe(
                topic_filter, options=SubscribeOptions(qos=1, noLocal=True)
            )
            if any(_code(answer) >= MIN_FAILURE_CODE for answer in granted):
                logger.warning(
                    "the broker does not let %s listen to %s", self._identifier, topic_filter
                )
        for publication in self._correspondent.greeting():
            await _publish(client, publication)
        self.connected.set()
        self._reported = ""
        logger.info("connected to the broker %s, %d waiting", self._broker.name, len(self.unsent))

    async def _send(self, client: Client) -> None:
        """Send what waits, in order, without waiting for each acknowledgement."""
        under_way: dict[Publication, asyncio.Task[None]] = {}
        try:
            while under_way or len(self.unsent) or not self._closing.is_set():
                self._wake.clear()
                self._reap(under_way)
                for publication in self.unsent.batch(MAX_IN_FLIGHT):
                    if publication not in under_way:
                        task = asyncio.create_task(_publish(client, publication))
                        task.add_done_callback(lambda _: self._wake.set())
                        under_way[publication] = task
                if under_way or not self._closing.is_set():
                    await self._wake.wait()
        finally:
            for task in under_way.values():
                task.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)
        for publication in self._correspondent.farewell():
            await _publish(client, publication)

    def _reap(self, under_way: dict[Publication, asyncio.Task[None]]) -> None:
        """Forget what the broker has.

        Raises:
            MqttError: The connection failed.
        """
        for publication, task in list(under_way.items()):
            if task.done():
                del under_way[publication]
                task.result()
                self.unsent.confirm(publication)

    async def _listen(self, client: Client) -> None:
        async for message in client.messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        payload = message.payload if isinstance(message.payload, bytes) else b""
        self._correspondent.receive(message.topic.value, payload, is_retained=message.retain)

    async def _first_of(self, *works: Coroutine[None, None, object]) -> None:
        """Run until one of several works ends, end the others, and raise what it raised."""
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _report(self, error: MqttError) -> None:
        """Log a failure once, until the broker was reached again or it is another one."""
        told = explain(error, self._broker, self._identifier)
        if told.message != self._reported:
            logger.warning("%s %s Captions go on without it.", told.message, told.remedy)
            self._reported = told.message
        n_new = self.unsent.n_dropped - self._n_dropped_reported
        if n_new:
            logger.warning("%d messages for the broker were dropped: too many waited", n_new)
            self._n_dropped_reported += n_new


async def _publish(client: Client, publication: Publication) -> None:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # the library's
    if publication.expiry_s is not None:
        properties.MessageExpiryInterval = publication.expiry_s
    if publication.payload:
        properties.ContentType = publication.content_type
    await client.publish(
        publication.topic,
        publication.payload,
        publication.qos,
        publication.is_retained,
        properties,
    )


def _code(granted: object) -> int:
    value = getattr(granted, "value", granted)
    return int(value) if isinstance(value, int) else 0


def _silent_logger() -> logging.Logger:
    transport_logger = logging.getLogger("audiokv.server.mqtt.transport")
    transport_logger.setLevel(logging.CRITICAL)  # below, it would repeat each failed attempt
    return transport_logger
