"""A dialect that does as it is told, and a dialogue with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Command,
    Dialect,
    Event,
    Farewell,
    Opening,
)
from audiokv.server.protocols.dialogue import DialectDialogue
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.messages import Caption
from tests.server.doubles import (
    FakeWire,
    ManualClock,
    ScriptedRecognizer,
)
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from audiokv.server.app import CaptionServer
    from audiokv.server.refusals import RefusalError

BEGIN = Begin(AudioFormat())


class Parrot:
    """A dialect whose messages are commands, kept in a book."""

    def __init__(self, *, at_open: list[Command] | None = None) -> None:
        self.tick_every_s: float | None = None
        self.idle_timeout_s: float | None = None
        self.can_wait = True
        self.missed: list[int] = []
        self.book: dict[str | bytes, list[Command] | Exception] = {}
        self.events: list[Event] = []
        self.at_open = at_open or []
        self.opening: Opening | None = None
        self.is_broken = False

    def open(self, opening: Opening) -> list[Command]:
        self.opening = opening
        return self.at_open

    def hear(self, message: str | bytes) -> list[Command]:
        if isinstance(message, bytes):
            return [Audio(message)]
        commands = self.book[message]
        if isinstance(commands, Exception):
            raise commands
        return commands

    def miss(self, more_ms: int) -> list[Command]:
        self.missed.append(more_ms)
        return []

    def say(self, event: Event) -> list[str | bytes]:
        if self.is_broken:
            raise RuntimeError("secret words")
        self.events.append(event)
        return [event.text] if isinstance(event, Caption) and event.is_final else []

    def refuse(self, refusal: RefusalError) -> Farewell:
        return Farewell([f"refused: {refusal.code}"], refusal.close_code, "ä" * 100)

    def done(self) -> Farewell:
        return Farewell(["bye", b"\x00"], 1000, "finished")

    def tick(self) -> list[str | bytes]:
        return ["tick"]


class Rig:
    """A dialogue with a parrot, over a wire to nobody, in a running server."""

    def __init__(self, server: CaptionServer, clock: ManualClock, parrot: Parrot) -> None:
        self.server = server
        self.clock = clock
        self.parrot = parrot
        self.wire = FakeWire()
        dialect: Dialect = parrot
        self.dialogue = DialectDialogue(
            self.wire,
            dialect,
            Opening("/parrot"),
            registry=server.registry,
            config=server._config,
            clock=clock,
        )
        self.task = asyncio.ensure_future(self.dialogue.run())

    def tell(self, *commands: Command) -> None:
        """Let a message come in that means these commands."""
        word = f"word {len(self.parrot.book)}"
        self.parrot.book[word] = list(commands)
        self.wire.feed(word)

    def heard(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.parrot.events if isinstance(event, kind)]

    @property
    def sent(self) -> list[str]:
        return [bytes(packed).decode() for packed in self.wire.sent]


@asynccontextmanager
async def rigged(
    parrot: Parrot | None = None, recognizer: ScriptedRecognizer | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    clock = ManualClock()
    async with running_server(recognizer, clock=clock, **settings) as server:
        rig = Rig(server, clock, parrot or Parrot())
        yield rig
        rig.wire.vanish()
        await rig.task
