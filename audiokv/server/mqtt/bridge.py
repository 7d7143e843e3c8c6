"""Joins the server's streams to the broker."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from audiokv.server.mqtt.broker import broker_of
from audiokv.server.mqtt.broker_link import BrokerLink
from audiokv.server.mqtt.desk import Desk
from audiokv.server.mqtt.device import DeviceRoute
from audiokv.server.mqtt.follower import StreamFollower
from audiokv.server.mqtt.hermes import HermesMirror
from audiokv.server.mqtt.hermes_listening import HermesRoute
from audiokv.server.mqtt.home_assistant import discovery
from audiokv.server.mqtt.stream_topics import Source, StreamTopics
from audiokv.server.mqtt.topics import Topics
from audiokv.server.mqtt.unsent import AT_LEAST_ONCE, Publication

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.live_stream import LiveStream
    from audiokv.server.mqtt.broker import Broker
    from audiokv.server.mqtt.desk import Route
    from audiokv.server.mqtt.stream_topics import CaptionMapping
    from audiokv.server.stream_registry import StreamRegistry

logger = logging.getLogger(__name__)


class MqttBridge:
    """Publishes every stream, and opens streams for devices that speak MQTT.

    Args:
        config: The server's settings.
        broker: The broker.
        registry: All streams.
        model: Name of the recogniser.
        clock: The server's clock.

    Raises:
        ConfigError: Topics or TLS settings cannot be used.
    """

    def __init__(
        self,
        config: ServerConfig,
        broker: Broker,
        *,
        registry: StreamRegistry,
        model: str,
        clock: Clock,
    ) -> None:
        self._topics = Topics(config.mqtt_prefix, config.mqtt_instance)
        self._stream_topics = StreamTopics(self._topics)
        self._mappings: list[CaptionMapping] = [self._stream_topics]
        self._retained: list[Publication] = []
        self._live: dict[str, StreamFollower] = {}
        self._limit_s = config.shutdown_timeout_s
        self._running: asyncio.Task[None] | None = None
        self._registry = registry
        routes: list[Route] = []
        if config.mqtt_audio:
            routes.append(DeviceRoute(self._topics))
        if config.mqtt_hermes:
            routes.append(HermesRoute())
            self._mappings.append(HermesMirror(config.mqtt_instance))
        if config.mqtt_home_assistant:
            version = importlib.metadata.version("audiokv")
            self._retained.append(discovery(self._topics, model=model, version=version))
        self.link = BrokerLink(broker, f"audiokv-{config.mqtt_instance}", self, clock)
        self._desk = Desk(
            routes, publish=self._publish, registry=registry, config=config, clock=clock
        )

    @property
    def will(self) -> Publication:
        """The status that the broker publishes when the server is gone without a word."""
        return self._status("offline")

    @property
    def subscriptions(self) -> Sequence[str]:
        """What the server listens to: devices, and states left by an earlier life of its own."""
        return [self._topics.state("+"), *self._desk.subscriptions]

    def greeting(self) -> list[Publication]:
        """Return status, discovery, and the live streams that a restarted broker may not know."""
        states = [follower.live_state() for follower in self._live.values()]
        unknown = [state for state in states if not self.link.unsent.has_kept(state.topic)]
        return [self._status("online"), *self._retained, *unknown]

    def farewell(self) -> list[Publication]:
        """Return the end of every live stream, and the status."""
        ends = [end for follower in self._live.values() for end in follower.stopped()]
        return [*ends, self._status("offline")]

    def receive(self, topic: str, payload: bytes, *, is_retained: bool) -> None:
        """Take a message of a device, or a state that nobody cleared."""
        stream = self._topics.stream_of_state(topic)
        if stream is None:
            if not is_retained:  # a retained start would open a stream at each connection
                self._desk.receive(topic, payload)
        elif payload and stream not in self._live and not self.link.unsent.has_kept(topic):
            self.link.put(self._stream_topics.cleared(stream))

    def start(self) -> None:
        """Follow every stream from now on, and look for the broker."""
        self._registry.follow(self._follow)
        self._running = asyncio.create_task(self.link.run(), name="mqtt")

    async def stop(self) -> None:
        """Say farewell, within the time to close everything."""
        await self._desk.close()
        self.link.close()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=self._limit_s)
            self._running.cancel()
            await asyncio.wait([self._running])

    def _follow(self, stream: LiveStream) -> StreamFollower:
        follower = StreamFollower(
            Source(stream.name, stream.metadata),
            self._stream_topics,
            self._mappings,
            publish=self._publish,
            on_over=lambda: self._forget(stream.name),
        )
        self._live[stream.name] = follower
        return follower

    def _forget(self, stream: str) -> None:
        self._live.pop(stream, None)

    def _publish(self, publication: Publication) -> None:
        if publication.qos == AT_LEAST_ONCE:
            self.link.put(publication)
        else:
            self.link.put_partial(publication)

    def _status(self, status: str) -> Publication:
        return Publication(
            self._topics.status, status.encode(), is_retained=True, content_type="text/plain"
        )


@asynccontextmanager
async def published(
    config: ServerConfig, registry: StreamRegistry, model: str, clock: Clock
) -> AsyncIterator[None]:
    """Publish the streams of a server while inside, if a broker is set.

    Raises:
        ConfigError: The settings of the broker cannot be used. A broker that is away or refuses is
            no error: the server runs without it, and a log line tells.
    """
    broker = broker_of(config)
    if broker is None:
        yield
        return
    bridge = MqttBridge(config, broker, registry=registry, model=model, clock=clock)
    bridge.start()
    try:
        yield
    finally:
        await bridge.stop()
