"""A link whose other side is a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from audiokv.server.clock import LoopClock
from audiokv.server.mqtt.broker import Broker
from audiokv.server.mqtt.broker_link import BrokerLink
from audiokv.server.mqtt.unsent import Publication, UnsentQueue
from tests.server.mqtt.mosquitto import HOST, PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from audiokv.server.clock import Clock


@dataclass
class Talker:
    """A correspondent that notes what it hears."""

    subscriptions: tuple[str, ...] = ()
    heard: list[tuple[str, bytes, bool]] = field(default_factory=list)
    n_greetings: int = 0

    @property
    def will(self) -> Publication:
        return Publication("t/status", b"offline", is_retained=True)

    def greeting(self) -> list[Publication]:
        self.n_greetings += 1
        return [Publication("t/status", b"online", is_retained=True)]

    def farewell(self) -> list[Publication]:
        return [Publication("t/status", b"bye", is_retained=True)]

    def receive(self, topic: str, payload: bytes, *, is_retained: bool) -> None:
        self.heard.append((topic, payload, is_retained))


@asynccontextmanager
async def linked(
    port: int,
    talker: Talker | None = None,
    *,
    clock: Clock | None = None,
    unsent: UnsentQueue | None = None,
    login: tuple[str | None, str | None] = (None, None),
) -> AsyncIterator[BrokerLink]:
    broker = Broker(HOST, port, user=login[0], password=login[1])
    link = BrokerLink(broker, "me", talker or Talker(), clock or LoopClock(), unsent)
    running = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield link
    finally:
        link.close()
        await running


def final(n: int, topic: str = "t/final") -> Publication:
    return Publication(topic, str(n).encode(), "s")
