"""A connection to a caption server that survives lost connections and restarted servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from audiokv.client.conversation import Conversation
from audiokv.client.events import EventQueue, LinkEvent
from audiokv.client.failures import LinkError, LostError, failure_of_connect
from audiokv.client.resumable import ResumableStream
from audiokv.client.timing import Backoff, Clock, LoopClock, Patience
from audiokv.streaming.captions import Notice
from audiokv.streaming.messages import Done, Finalize, Stop, Update

if TYPE_CHECKING:
    from types import TracebackType

    from audiokv.client.backlog import Request
    from audiokv.client.settings import LinkSettings

_MAX_CAPTION_BYTES = 4 * 2**20
_CONNECT_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 2.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ReconnectingLink:
    """Sends audio to a server and yields its captions, each exactly once.

    Use it as an asynchronous context manager. Send audio with `send` (waits while the server is
    behind) or `offer` (never waits, for live sources), read events by iterating over the link,
    and end with `stop`. A lost connection is taken up again where the server has it; a server
    that forgot the stream gets a new one that begins after the last committed word. Times, segment
    and caption numbers go on as if nothing had happened.

    Args:
        settings: Where to and how.
        clock: Measures silence and waits between attempts.
        backoff: Decides how long to wait between attempts.
    """

    def __init__(
        self, settings: LinkSettings, *, clock: Clock | None = None, backoff: Backoff | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock or LoopClock()
        self._backoff = backoff or Backoff()
        self._patience = Patience(settings.patience_s)
        self._events = EventQueue()
        self._stream = ResumableStream(settings, self._events, self._note_success)
        self._is_stopping = False
        self._task: asyncio.Task[Done] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="link")
        self._task.add_done_callback(self._end)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LinkEvent:
        event = await self._events.get()
        if event is None:
            self._raise_failure()
            raise StopAsyncIteration
        return event

    @property
    def unacknowledged_ms(self) -> int:
        """Audio the server has not confirmed yet."""
        return self._stream.unacknowledged_ms

    async def send(self, audio: bytes) -> None:
        """Send audio in the declared format, split anywhere; waits while too much is unconfirmed.

        Raises:
            AudioKVError: The link has failed for good.
        """
        self._check_open()
        self._stream.append(audio)
        while self._stream.is_full:
            await self._stream.wait_for_room()
            self._raise_failure()

    def offer(self, audio: bytes) -> None:
        """Send live audio without ever waiting; through a long outage the oldest is dropped.

        Raises:
            AudioKVError: The link has failed for good.
        """
        self._check_open()
        self._stream.append(audio)
        if self._stream.unacknowledged_ms > self._settings.max_offered_ms:
            self._stream.drop_oldest(self._settings.max_offered_ms)

    def finalize(self) -> None:
        """Ask for the open segment to be closed after the audio sent so far."""
        self._request(Finalize())

    def update(
        self, *, language: str | None = None, prompt: str | None = None, profile: str | None = None
    ) -> None:
        """Change wishes from here on; None leaves a wish as it is."""
        self._request(Update(language=language, prompt=prompt, profile=profile))

    def request_stop(self) -> None:
        """Say that no audio follows; captions go on coming until the stream is done."""
        if not self._is_stopping:
            self._request(Stop())
            self._is_stopping = True

    async def stop(self) -> Done:
        """End the stream and return when every caption has come.

        Raises:
            AudioKVError: The link has failed for good.
        """
        self.request_stop()
        return await asyncio.shield(self._running())

    def _running(self) -> asyncio.Task[Done]:
        if self._task is None:
            raise RuntimeError("Enter the link with 'async with' first.")
        return self._task

    def _request(self, message: Request) -> None:
        self._check_open()
        self._stream.request(message)

    def _check_open(self) -> None:
        self._raise_failure()
        if self._is_stopping:
            raise RuntimeError("The link was stopped; open a new one for more audio.")

    def _raise_failure(self) -> None:
        task = self._running()
        failure = task.exception() if task.done() and not task.cancelled() else None
        if failure is not None:
            raise failure

    def _end(self, task: asyncio.Task[Done]) -> None:
        if not task.cancelled():
            task.exception()  # seen: whoever uses the link next gets it raised
        self._events.close()
        self._stream.release()

    def _note_success(self) -> None:
        self._patience.note_success()
        self._backoff.reset()

    async def _run(self) -> Done:
        while True:
            began_at_s = self._clock.now_s()
            try:
                return self._stream.finish(await self._connect_once())
            except LostError as lost:
                if lost.is_forgotten:
                    self._stream.restart()
                if not lost.can_retry_now:
                    await self._wait_out(lost, self._clock.now_s() - began_at_s)

    async def _connect_once(self) -> Done:
        url, token = self._settings.url, self._settings.token
        try:
            socket = await connect(
                url,
                additional_headers={"Authorization": f"Bearer {token}"} if token else None,
                proxy=None if urlsplit(url).hostname in _LOOPBACK else True,
                compression=None,
                open_timeout=_CONNECT_TIMEOUT_S,
                close_timeout=_CLOSE_TIMEOUT_S,
                ping_interval=None,
                max_size=_MAX_CAPTION_BYTES,
            )
        except (OSError, WebSocketException, ValueError) as error:
            raise failure_of_connect(url, error) from error
        async with socket:
            timeout_s = self._settings.silence_timeout_s
            return await Conversation(socket, self._stream, self._clock, timeout_s).run()

    async def _wait_out(self, lost: LostError, lasted_s: float) -> None:
        if lasted_s >= self._settings.patience_s:
            self._patience.note_success()
        delay_s = self._backoff.next_s() if lost.retry_after_s is None else lost.retry_after_s
        was_never_there = not self._stream.was_ready and lost.retry_after_s is None
        if was_never_there or self._patience.ends_before(self._clock.now_s(), delay_s):
            raise self._give_up(lost) from lost
        message = f"The server {lost.reason}; next attempt in {delay_s:.1f} s."
        self._events.put(Notice("connection_lost", message))
        await self._clock.sleep(delay_s)

    def _give_up(self, lost: LostError) -> LinkError:
        if lost.report is not None:
            return LinkError(lost.report.code, lost.report.message, lost.report.remedy)
        return LinkError(
            "unreachable",
            f"The server at {self._settings.url} {lost.reason}.",
            "Check the address, and that the server runs (audiokv serve).",
        )
