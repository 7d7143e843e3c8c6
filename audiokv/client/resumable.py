"""The source's side of one stream, apart from any connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from audiokv.client.backlog import Backlog
from audiokv.client.sequence import CaptionSequence
from audiokv.streaming.captions import Caption, Notice, SpeechChange
from audiokv.streaming.messages import (
    Done,
    Limits,
    Progress,
    Ready,
    Resume,
    ServerMessage,
    Start,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.client.backlog import Request
    from audiokv.client.events import EventQueue
    from audiokv.client.settings import LinkSettings
    from audiokv.streaming.messages import ClientMessage

_MAX_PIECE_BYTES = 16_384
_UNACKNOWLEDGED_MS = 10_000  # until the server has named its limit


class ResumableStream:
    """Says over any connection what the server still needs, and tells its user what is new.

    Args:
        settings: What is sent and how.
        events: Where captions, progress and notices go, on the source's clock.
        note_success: Called whenever the stream gets further than it ever was.
    """

    def __init__(
        self, settings: LinkSettings, events: EventQueue, note_success: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._start = settings.start()
        self._events = events
        self._note_success = note_success
        self._backlog = Backlog(settings.audio_format)
        self._captions = CaptionSequence(self._backlog.timeline)
        self._to_send = asyncio.Event()
        self._has_room = asyncio.Event()
        self._resume_token: str | None = None
        self._limits: Limits | None = None
        self._furthest = 0
        self._dropped_ms = 0

    @property
    def was_ready(self) -> bool:
        """Whether a server ever accepted the stream."""
        return self._limits is not None

    @property
    def unacknowledged_ms(self) -> int:
        """Audio the server has not confirmed."""
        return self._backlog.unacknowledged_ms

    @property
    def is_full(self) -> bool:
        """Whether more is unconfirmed than the server allows."""
        limits = self._limits
        max_ahead_ms = limits.max_unacknowledged_ms if limits else _UNACKNOWLEDGED_MS
        return self._backlog.unacknowledged_ms > max_ahead_ms

    async def wait_for_room(self) -> None:
        """Return when the server has confirmed something, or `release` was called."""
        self._has_room.clear()
        await self._has_room.wait()

    def release(self) -> None:
        """Let whoever waits for room go on."""
        self._has_room.set()

    def append(self, audio: bytes) -> None:
        """Add audio in the declared format, split anywhere."""
        self._backlog.append(audio)
        self._to_send.set()

    def request(self, message: Request) -> None:
        """Add a request after the audio so far; a change of wishes also holds for new streams."""
        if isinstance(message, Update):
            start = self._start
            self._start = replace(
                start,
                language=start.language if message.language is None else message.language,
                prompt=start.prompt if message.prompt is None else message.prompt,
                profile=start.profile if message.profile is None else message.profile,
            )
        self._backlog.request(message)
        self._to_send.set()

    def drop_oldest(self, keep_ms: int) -> None:
        """Keep only the latest unconfirmed audio and say so."""
        if not self._dropped_ms:
            self._events.put(
                Notice(
                    "audio_dropped",
                    f"The server has not taken the last {keep_ms // 1000} s of audio; "
                    "what is older is being dropped.",
                    "Check the network and the load of the server.",
                )
            )
        self._dropped_ms += self._backlog.drop_oldest(keep_ms)

    def restart(self) -> None:
        """Go on with a new stream after the last committed word."""
        for closing in self._captions.restart():
            self._events.put(closing)
        at_ms = self._backlog.ms(self._backlog.restart())
        self._resume_token = None
        self._events.put(
            Notice(
                "stream_restarted",
                "The server no longer knew the stream; "
                f"a new one goes on from {at_ms / 1000:.1f} s.",
            )
        )

    def opening(self) -> Start:
        """Return the first message of a connection."""
        if self._resume_token is None:
            return self._start
        return replace(self._start, resume=Resume(self._resume_token, self._captions.last_seq))

    async def next_to_send(self, limits: Limits) -> bytes | ClientMessage:
        """Return the next audio or request the server may be sent."""
        piece_bytes = min(_MAX_PIECE_BYTES, limits.max_message_bytes)
        while True:
            item = self._backlog.take(piece_bytes, limits.max_unacknowledged_ms)
            if item is not None:
                return item
            self._to_send.clear()
            await self._to_send.wait()

    def hear(self, message: ServerMessage) -> None:
        """Take a message of the server."""
        match message:
            case Ready():
                self._hear_ready(message)
            case Caption():
                self._hear_caption(message)
            case Progress():
                self._hear_progress(message)
            case SpeechChange():
                at_ms = self._backlog.timeline.start_ms(message.at_ms)
                self._events.put(replace(message, at_ms=at_ms))
            case Notice():
                self._events.put(message)

    def _hear_ready(self, ready: Ready) -> None:
        if self._resume_token is not None:
            if not ready.resumed:
                self.restart()
            self._events.put(Notice("connection_back", "The connection is back."))
        self._backlog.resume(ready.received_samples)
        self._resume_token = ready.resume_token
        self._limits = ready.limits

    def _hear_caption(self, caption: Caption) -> None:
        placed = self._captions.accept(caption)
        if placed is None:
            return
        self._backlog.commit(self._captions.committed_ms)
        self._note_if_further()
        self._events.put(placed)

    def _hear_progress(self, progress: Progress) -> None:
        self._backlog.acknowledge(progress.received_samples)
        self._note_if_further()
        self._to_send.set()
        self._has_room.set()
        if not self.is_full:
            self._report_dropped()
        timeline = self._backlog.timeline
        self._events.put(
            Progress(
                received_ms=timeline.end_ms(progress.received_ms),
                received_samples=timeline.source_sample(progress.received_samples),
                processed_ms=timeline.end_ms(progress.processed_ms),
                lag_ms=progress.lag_ms,
                cache=progress.cache,
            )
        )

    def _note_if_further(self) -> None:
        """Count only what is new: a server that fails at one spot again and again does not help."""
        reached = self._backlog.acknowledged + self._backlog.samples(self._captions.committed_ms)
        if reached > self._furthest:
            self._furthest = reached
            self._note_success()

    def _report_dropped(self) -> None:
        if self._dropped_ms:
            seconds = self._dropped_ms / 1000
            self._dropped_ms = 0
            self._events.put(
                Notice("audio_lost", f"{seconds:.1f} s of audio could not be kept and are missing.")
            )

    def finish(self, done: Done) -> Done:
        """Return the server's ``done`` on the source's clock."""
        self._report_dropped()
        received_ms = self._backlog.timeline.end_ms(done.received_ms)
        return Done(received_ms, max(done.segments, self._captions.n_segments))
