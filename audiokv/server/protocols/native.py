"""The native protocol's two paths: a source that sends audio, and viewers of its stream."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from websockets.exceptions import ConnectionClosed

from audiokv.server.clock import deadline, sleep
from audiokv.server.failure_log import log_failure
from audiokv.server.outbox import SKIP_PARTIALS_BYTES, Outbox
from audiokv.server.refusals import (
    FAULT_CODES,
    CloseCode,
    RefusalError,
    as_refusal,
    internal_refusal,
)
from audiokv.server.request_limit import RequestLimit
from audiokv.server.wire import pack
from audiokv.streaming.errors import AudioKVError, MessageError
from audiokv.streaming.messages import (
    Finalize,
    Keepalive,
    Start,
    Stop,
    Update,
    decode_client,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audiokv.server.clock import Clock
    from audiokv.server.config import ServerConfig
    from audiokv.server.live_stream import LiveStream
    from audiokv.server.stream_registry import StreamRegistry
    from audiokv.server.wire import Wire

logger = logging.getLogger(__name__)

PROGRESS_EVERY_S = 1.0
VIEWER_PROGRESS_EVERY_S = 15.0  # a viewer that hears nothing for longer has lost the connection
ACKNOWLEDGE_PARTS = 4  # of what a sender may be ahead: acknowledge at least each such part


class SourceDialogue:
    """One connection on ``/v1/stream``, from its first message to its close.

    Args:
        wire: The connection.
        registry: All streams.
        config: The server's settings.
        clock: The server's clock.
    """

    def __init__(
        self, wire: Wire, *, registry: StreamRegistry, config: ServerConfig, clock: Clock
    ) -> None:
        self._wire = wire
        self._registry = registry
        self._config = config
        self._clock = clock
        self._outbox = Outbox(wire, clock)
        self._requests = RequestLimit(clock)
        self._heard_s = clock.now_s()
        self._is_reading = True
        self._acknowledged_ms = 0

    async def run(self) -> None:
        """Serve the connection; returns when it is closed."""
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(self._outbox.pump(), name=f"{self._wire.name} send")
            stream: LiveStream | None = None
            try:
                with explained(self._outbox, self._wire):
                    stream = await self._begin()
                    pump.set_name(f"{stream.name} send")
                    ticker = tasks.create_task(self._tick(stream), name=f"{stream.name} tick")
                    try:
                        await self._listen(stream)
                    finally:
                        ticker.cancel()
            finally:
                await self._leave(pump, stream)

    async def _leave(self, pump: asyncio.Task[None], stream: LiveStream | None) -> None:
        try:
            await asyncio.wait([pump])  # says the rest and closes; each of its steps is timed
        finally:
            if stream is not None:
                is_delivered = self._outbox.is_said and self._wire.is_close_acknowledged
                self._registry.leave(
                    stream,
                    self._outbox,
                    is_delivered=is_delivered,
                    is_at_fault=self._outbox.close_code in FAULT_CODES,
                )

    async def _begin(self) -> LiveStream:
        try:
            async with deadline(self._clock, self._config.start_timeout_s):
                message = await self._receive()
        except TimeoutError:
            raise RefusalError(
                CloseCode.IDLE,
                "no_start",
                f"No start came within {self._config.start_timeout_s:g} s.",
                "Send start as the first message.",
            ) from None
        start = None if isinstance(message, bytes) else decode_client(message)
        if not isinstance(start, Start):
            raise MessageError(
                "start_expected",
                "The first message was not a start.",
                "Send start first, as a text message, then audio.",
            )
        self._heard_s = self._clock.now_s()
        if start.resume is None:
            return self._registry.open(start, self._outbox)
        return self._registry.resume(start, start.resume, self._outbox)

    async def _receive(self) -> str | bytes:
        message = await self._wire.receive()
        # In characters for text: at most four times as many bytes, which the transport bounds.
        if len(message) > self._config.max_message_bytes:
            raise RefusalError(
                CloseCode.TOO_LARGE,
                "message_too_large",
                f"A message of {len(message)} bytes came.",
                f"Send at most {self._config.max_message_bytes} bytes in one message.",
            )
        return message

    async def _listen(self, stream: LiveStream) -> None:
        """Take messages until the connection is closed, or another one took the stream over."""
        while True:
            message = await self._receive()
            if stream.hub.source is not self._outbox:
                return
            self._heard_s = self._clock.now_s()
            if isinstance(message, bytes):
                await self._take_audio(stream, message)
            else:
                self._obey(stream, message)

    async def _take_audio(self, stream: LiveStream, audio: bytes) -> None:
        if stream.is_over:
            return
        if stream.is_stopping:
            raise MessageError(
                "audio_after_stop",
                f"{len(audio)} bytes of audio came after stop.",
                "Send stop last, or start a new stream.",
            )
        stream.accept(audio)
        step_ms = self._config.max_unacknowledged_ms // ACKNOWLEDGE_PARTS
        if stream.received_ms - self._acknowledged_ms >= step_ms:
            self._acknowledge(stream)
        self._is_reading = False
        try:
            await stream.room(self._config.max_backlog_ms)
        finally:
            self._is_reading = True
            self._heard_s = self._clock.now_s()

    def _obey(self, stream: LiveStream, text: str) -> None:
        match decode_client(text):
            case Stop():
                stream.stop()
            case Finalize():
                self._requests.take()
                stream.finalize()
            case Update() as update:
                self._requests.take()
                stream.update(self._registry.options_of(update, stream.options))
            case Keepalive():
                pass
            case Start():
                raise MessageError(
                    "second_start",
                    "The stream is already open.",
                    "Send start once; use update to change wishes.",
                )

    def _acknowledge(self, stream: LiveStream) -> None:
        self._acknowledged_ms = stream.received_ms
        stream.hub.report(stream.progress())

    async def _tick(self, stream: LiveStream) -> None:
        """Report progress once a second, and end a connection on which nothing comes."""
        while not self._outbox.is_ending and not stream.is_over:
            await sleep(self._clock, PROGRESS_EVERY_S)
            if stream.hub.source is not self._outbox or stream.is_over:
                return
            self._acknowledge(stream)
            silent_s = self._clock.now_s() - self._heard_s
            is_watched = self._is_reading and not stream.is_stopping
            if is_watched and silent_s > self._config.idle_timeout_s:
                refuse(self._outbox, self._idle())

    def _idle(self) -> RefusalError:
        return RefusalError(
            CloseCode.IDLE,
            "idle",
            f"Nothing came for {self._config.idle_timeout_s:g} s.",
            "Send audio or keepalive; resume the stream to go on.",
        )


async def serve_viewer(wire: Wire, name: str, *, registry: StreamRegistry, clock: Clock) -> None:
    """Serve one connection on ``/v1/watch/{name}``; returns when it is closed."""
    outbox = Outbox(wire, clock, skip_partials_bytes=SKIP_PARTIALS_BYTES)
    async with asyncio.TaskGroup() as tasks:
        pump = tasks.create_task(outbox.pump(), name=f"{name} view {wire.name}")
        stream: LiveStream | None = None
        try:
            with explained(outbox, wire):
                stream = registry.watch(name, outbox)
                ticker = tasks.create_task(_tick_viewer(stream, outbox, clock))
                try:
                    while True:
                        _check_viewer(await wire.receive())
                finally:
                    ticker.cancel()
        finally:
            if stream is not None:
                stream.hub.detach_viewer(outbox)
                _log_skipped(name, wire, outbox)
            await asyncio.wait([pump])


async def _tick_viewer(stream: LiveStream, outbox: Outbox, clock: Clock) -> None:
    """Say something now and then, or a viewer could not tell a pause from a lost connection."""
    while True:
        await sleep(clock, VIEWER_PROGRESS_EVERY_S)
        outbox.put_partial(pack(stream.progress()))


def _check_viewer(message: str | bytes) -> None:
    if isinstance(message, bytes) or not isinstance(decode_client(message), Keepalive):
        raise MessageError(
            "viewer_only",
            "A viewer sent something other than keepalive.",
            "Send audio on /v1/stream.",
        )


def _log_skipped(name: str, wire: Wire, outbox: Outbox) -> None:
    if outbox.n_skipped:
        logger.info("viewer %s of %s: %d partials skipped", wire.name, name, outbox.n_skipped)


class Client(Protocol):
    """The client of a connection, in whichever protocol."""

    def fail(self, refusal: RefusalError) -> None:
        """Tell why the connection ends, and close it."""

    def cut(self) -> None:
        """Close the connection at once."""


@contextmanager
def explained(client: Client, wire: Wire) -> Iterator[None]:
    """The boundary of a connection: whatever goes wrong inside is told to its client."""
    try:
        yield
    except AudioKVError as error:
        refuse(client, as_refusal(error))
    except ConnectionClosed:
        client.cut()
    except Exception as error:  # noqa: BLE001  the boundary of a connection
        log_failure(logger, f"connection {wire.name}", error)
        refuse(client, internal_refusal())
    except BaseException:
        client.cut()
        raise


def refuse(client: Client, refusal: RefusalError) -> None:
    """Tell a client why, then close its connection."""
    logger.info("refused: %s", refusal.code)
    client.fail(refusal)
