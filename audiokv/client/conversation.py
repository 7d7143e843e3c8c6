"""One connection to a server, from ``start`` until it is done or lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from websockets.exceptions import ConnectionClosed

from audiokv.client.failures import LinkError, LostError, failure_of_close
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import (
    Done,
    ErrorReport,
    Keepalive,
    Ready,
    decode_server,
    encode,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from audiokv.client.timing import Clock
    from audiokv.streaming.messages import ClientMessage, Limits, ServerMessage, Start


class Speaker(Protocol):
    """Whoever has something to say over the connection and listens to the answers."""

    def opening(self) -> Start:
        """Return the first message."""

    def hear(self, message: ServerMessage) -> None:
        """Take a message of the server.

        Raises:
            LostError: The server forgot the stream.
        """

    async def next_to_send(self, limits: Limits) -> bytes | ClientMessage:
        """Return what to send next, waiting until there is something."""


class Conversation:
    """Runs one connection: sends, listens, keeps alive, and notices when the other side is gone.

    Args:
        socket: The open connection; the caller closes it.
        speaker: Decides what is said.
        clock: Measures silence.
        silence_timeout_s: Seconds without a sign of life after which the connection is lost; a
            ping asks for one after half of it.
    """

    def __init__(
        self, socket: ClientConnection, speaker: Speaker, clock: Clock, silence_timeout_s: float
    ) -> None:
        self._socket = socket
        self._speaker = speaker
        self._clock = clock
        self._silence_timeout_s = silence_timeout_s
        self._heard_at_s = self._sent_at_s = clock.now_s()
        self._report: ErrorReport | None = None

    async def run(self) -> Done:
        """Return the server's ``done``.

        Raises:
            LostError: The connection was lost; another may do better.
            LinkError: The server refused for good.
        """
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self._watch(group))]
            outcome = await self._listen(group, helpers)
            for helper in helpers:
                helper.cancel()
        if isinstance(outcome, Done):
            return outcome
        raise outcome

    async def _listen(
        self, group: asyncio.TaskGroup, helpers: list[asyncio.Task[None]]
    ) -> Done | LostError | LinkError:
        try:
            await self._say(self._speaker.opening())
            while True:
                message = _decode(await self._socket.recv())
                self._heard_at_s = self._clock.now_s()
                self._speaker.hear(message)
                match message:
                    case Ready():
                        helpers.append(group.create_task(self._talk(message.limits)))
                        helpers.append(group.create_task(self._keep_alive(message.limits)))
                    case ErrorReport():
                        self._report = message
                    case Done():
                        return message
        except ConnectionClosed as closed:
            return failure_of_close(closed, self._report)
        except (LostError, LinkError) as failure:
            return failure

    async def _say(self, message: bytes | ClientMessage) -> None:
        await self._socket.send(message if isinstance(message, bytes) else encode(message))
        self._sent_at_s = self._clock.now_s()

    async def _talk(self, limits: Limits) -> None:
        try:
            while True:
                await self._say(await self._speaker.next_to_send(limits))
        except ConnectionClosed:
            return  # the listener finds out why

    async def _keep_alive(self, limits: Limits) -> None:
        interval_s = limits.idle_timeout_s / 3
        try:
            while True:
                await self._clock.sleep(interval_s)
                if self._clock.now_s() - self._sent_at_s >= interval_s:
                    await self._say(Keepalive())
        except ConnectionClosed:
            return

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        half_s = self._silence_timeout_s / 2
        ping: asyncio.Task[None] | None = None
        try:
            while True:
                await self._clock.sleep(half_s)
                silent_s = self._clock.now_s() - self._heard_at_s
                if silent_s >= self._silence_timeout_s:
                    self._socket.transport.abort()
                    return
                if silent_s >= half_s and (ping is None or ping.done()):
                    ping = group.create_task(self._ping())
        finally:
            if ping is not None:
                ping.cancel()

    async def _ping(self) -> None:
        try:
            pong = await self._socket.ping()
            await pong
            self._heard_at_s = self._clock.now_s()
        except ConnectionClosed:
            return


def _decode(raw: str | bytes) -> ServerMessage:
    if isinstance(raw, bytes):
        raise LinkError(
            "bad_message", "The server sent a binary message.", "Use matching versions."
        )
    try:
        return decode_server(raw)
    except MessageError as error:
        raise LinkError(
            "bad_message",
            f"The server sent a message this client does not understand: {error.message}",
            "Use matching versions of server and client.",
        ) from error
