"""Runs any dialect over any connection."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from audiokv.server.clock import sleep
from audiokv.server.failure_log import log_failure
from audiokv.server.outbox import Outbox
from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Change,
    Farewell,
    Finalize,
    Finalized,
    Gap,
    Reply,
    Stop,
    Taken,
)
from audiokv.server.protocols.live_audio import LiveAudio
from audiokv.server.protocols.native import explained, refuse
from audiokv.server.refusals import CloseCode, RefusalError, as_refusal
from audiokv.server.request_limit import RequestLimit
from audiokv.server.wire import Binary
from audiokv.streaming.errors import AudioKVError, MessageError
from audiokv.streaming.messages import (
    AUTO_LANGUAGE,
    MAX_PROMPT_CHARS,
    Caption,
    Start,
    Update,
    decode_server,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.live_stream import LiveStream
    from audiokv.server.protocols.dialect import Command, Dialect, Event, Opening
    from audiokv.server.stream_registry import StreamRegistry
    from audiokv.server.wire import Wire
    from audiokv.server.worker import Said
    from audiokv.streaming.messages import Done, Progress, Ready

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
GAP_PIECE_MS = 1_000
MISSING_AFTER_MS = 2_000  # a network may stall for less
PACKET_MS = 20  # what a source would have sent in one message; no part of a silence
_MAX_REASON_BYTES = 123  # RFC 6455, section 5.5: a close frame has room for no more


class DialectListener:
    """Tells the client of a dialect what its stream says.

    Args:
        dialect: Puts it into the client's words.
        outbox: Where they go.
        name: Name of the connection, for the log.
    """

    def __init__(self, dialect: Dialect, outbox: Outbox, name: str) -> None:
        self._dialect = dialect
        self._outbox = outbox
        self._name = name

    def begin(self, ready: Ready, past: Iterable[bytes]) -> None:
        """Tell that the stream is open, and captions said before."""
        self.say(ready)
        for packed in past:
            event = decode_server(packed.decode())
            if isinstance(event, Caption):
                self.say(event)

    def hear(self, said: Said) -> None:
        """Tell an event."""
        self.say(said.event)

    def report(self, progress: Progress) -> None:
        """Tell how far the stream is."""
        self.say(progress)

    def end(self, done: Done) -> None:
        """Tell that everything was said, and close."""
        self.say(done)
        self.part()

    def fail(self, refusal: RefusalError) -> None:
        """Tell why the connection ends, and close."""
        self._send_last(lambda: self._dialect.refuse(refusal))

    def part(self) -> None:
        """Close as after a success."""
        self._send_last(self._dialect.done)

    def cut(self) -> None:
        """Close at once."""
        self._outbox.cut()

    def say(self, event: Event) -> None:
        """Send what the dialect makes of an event."""
        self.send(lambda: self._dialect.say(event))

    def send(self, words: Callable[[], Iterable[str | bytes]]) -> None:
        """Send messages that a dialect gives; its failure ends this connection only."""
        try:
            for message in words():
                self._outbox.put(_packed(message))
        except Exception as error:  # noqa: BLE001  called for a stream: its hub must not be harmed
            log_failure(logger, f"dialect of {self._name}", error)
            self._outbox.finish(CloseCode.INTERNAL, "internal")

    def _send_last(self, words: Callable[[], Farewell]) -> None:
        farewells: list[Farewell] = []

        def messages() -> list[str | bytes]:
            farewells.append(words())
            return farewells[0].messages

        self.send(messages)
        for farewell in farewells:
            self._outbox.finish(farewell.close_code, _clipped(farewell.reason))


class DialectDialogue:
    """One connection in a foreign protocol, from its opening to its close.

    The stream ends with its connection: what was heard is still recognised, for its viewers.
    Whatever a client sends ends at most its own stream.

    Args:
        wire: The connection.
        dialect: The protocol's state for this connection.
        opening: How the connection was opened.
        registry: All streams.
        config: The server's settings.
        clock: The server's clock.
    """

    def __init__(  # noqa: PLR0913  the server's parts, each with one use
        self,
        wire: Wire,
        dialect: Dialect,
        opening: Opening,
        *,
        registry: StreamRegistry,
        config: ServerConfig,
        clock: Clock,
    ) -> None:
        self._wire = wire
        self._dialect = dialect
        self._opening = opening
        self._registry = registry
        self._config = config
        self._clock = clock
        self._outbox = Outbox(wire, clock)
        self._listener = DialectListener(dialect, self._outbox, wire.name)
        self._requests = RequestLimit(clock)
        self._stream: LiveStream | None = None
        self._heard_s = clock.now_s()
        self._is_reading = True
        self._missed_ms = 0
        self._live = None if dialect.can_wait else LiveAudio(config.max_backlog_ms)

    async def run(self) -> None:
        """Serve the connection; returns when it is closed."""
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(self._outbox.pump(), name=f"{self._wire.name} send")
            timers = [tasks.create_task(self._watch_idleness())]
            if self._dialect.tick_every_s is not None:
                timers.append(tasks.create_task(self._tick(self._dialect.tick_every_s)))
            try:
                with explained(self._listener, self._wire):
                    await self._execute(self._dialect.open(self._opening))
                    while True:
                        await self._execute(self._heard(await self._receive()))
            finally:
                for timer in timers:
                    timer.cancel()
                await self._leave(pump)

    async def _leave(self, pump: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait([pump])  # says the rest and closes; each of its steps is timed
        finally:
            if self._stream is not None:
                self._registry.leave_for_good(self._stream, self._listener)

    async def _receive(self) -> str | bytes:
        message = await self._wire.receive()
        await self._miss()
        self._heard_s = self._clock.now_s()
        self._missed_ms = 0
        if len(message) > self._config.max_message_bytes:
            raise RefusalError(
                CloseCode.TOO_LARGE,
                "message_too_large",
                f"A message of {len(message)} bytes came.",
                f"Send at most {self._config.max_message_bytes} bytes in one message.",
            )
        return message

    def _heard(self, message: str | bytes) -> list[Command]:
        """Let the dialect hear a message, unless all that is left is to close."""
        return [] if self._outbox.is_ending else self._dialect.hear(message)

    async def _execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Reply(message):
                    self._listener.send(lambda message=message: [message])  # type: ignore[misc]
                case Begin():
                    self._begin(command)
                case Audio():
                    await self._take_audio(self._begun(), command)
                case Gap(duration_ms):
                    await self._skip(self._begun(), duration_ms)
                case Change(language, prompt):
                    self._requests.take()
                    stream = self._begun()
                    wishes = Update(language=language, prompt=prompt)
                    stream.update(self._registry.options_of(wishes, stream.options))
                case Finalize():
                    self._requests.take()
                    self._begun().finalize(lambda: self._listener.say(Finalized()))
                case Stop():
                    self._stop()

    def _begin(self, begin: Begin) -> None:
        if self._stream is not None:
            raise MessageError(
                "second_start", "The stream is already open.", "Use a new connection."
            )
        if len(begin.prompt) > MAX_PROMPT_CHARS:
            raise MessageError(
                "bad_field",
                f"The names and jargon to expect are {len(begin.prompt)} characters.",
                f"Send at most {MAX_PROMPT_CHARS}.",
            )
        start = Start(
            encoding=begin.fmt.encoding,
            sample_rate=begin.fmt.sample_rate_hz,
            channels=begin.fmt.channels,
            language=begin.language or AUTO_LANGUAGE,
            profile=begin.profile,
            prompt=begin.prompt,
            channel_labels=begin.channel_labels,
        )
        stream = self._registry.open(start, self._listener, begin.metadata)
        stream.on_moved = lambda: self._listener.say(stream.progress())
        self._stream = stream

    def _begun(self) -> LiveStream:
        if self._stream is None:
            raise MessageError(
                "start_expected",
                "The message needs a stream, and none was begun.",
                "Say first what audio will come.",
            )
        return self._stream

    def _stop(self) -> None:
        if self._stream is None:
            self._listener.part()
        else:
            self._stream.stop()

    async def _take_audio(self, stream: LiveStream, audio: Audio) -> None:
        if stream.is_stopping or stream.is_over:
            return
        if self._live is not None:
            self._live.take(stream, audio.data)
        else:
            stream.accept(audio.data)
            max_ahead_ms = math.inf if audio.max_ahead_ms is None else audio.max_ahead_ms
            await self._wait_for_room(stream, max_ahead_ms)
        self._listener.say(stream.progress())
        self._listener.say(Taken())

    async def _skip(self, stream: LiveStream, duration_ms: int) -> None:
        left_ms = duration_ms
        while left_ms > 0 and not (stream.is_stopping or stream.is_over):
            stream.lose(min(left_ms, GAP_PIECE_MS))
            left_ms -= GAP_PIECE_MS
            await self._wait_for_room(stream, math.inf)
        self._listener.say(stream.progress())

    async def _wait_for_room(self, stream: LiveStream, max_ahead_ms: float) -> None:
        self._is_reading = False
        began_s = self._clock.now_s()
        try:
            await stream.room(self._config.max_backlog_ms, max_ahead_ms)
        finally:
            self._is_reading = True
            self._heard_s += self._clock.now_s() - began_s  # nothing could come meanwhile

    async def _tick(self, every_s: float) -> None:
        while not self._outbox.is_ending:
            await sleep(self._clock, every_s)
            self._listener.send(self._dialect.tick)

    async def _miss(self) -> None:
        """Tell the dialect how long nothing came, once that is more than a stalled network."""
        silent_ms = round((self._clock.now_s() - self._heard_s) * 1000) - PACKET_MS
        more_ms = silent_ms - self._missed_ms
        if silent_ms >= MISSING_AFTER_MS and more_ms > 0:
            self._missed_ms = silent_ms
            try:
                await self._execute(self._dialect.miss(more_ms))
            except AudioKVError as error:
                refuse(self._listener, as_refusal(error))

    async def _watch_idleness(self) -> None:
        """Tell the dialect of silence, and end a connection on which nothing comes."""
        own_s = self._dialect.idle_timeout_s
        limit_s = self._config.idle_timeout_s if own_s is None else own_s
        while not self._outbox.is_ending:
            await sleep(self._clock, CHECK_EVERY_S)
            is_stopping = self._stream is not None and self._stream.is_stopping
            silent_s = self._clock.now_s() - self._heard_s
            if self._is_reading and not is_stopping:
                await self._miss()
                if silent_s > limit_s:
                    refuse(self._listener, _idle(limit_s))


def _packed(message: str | bytes) -> bytes:
    return message.encode() if isinstance(message, str) else Binary(message)


def _clipped(reason: str) -> str:
    return reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")


def _idle(limit_s: float) -> RefusalError:
    return RefusalError(
        CloseCode.IDLE,
        "idle",
        f"Nothing came for {limit_s:g} s.",
        "Send audio, or what the protocol has to keep a connection open.",
    )
