"""All streams of the server: opening, resuming, expiring and counting them."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from audiokv.models.base import StreamOptions
from audiokv.server.live_stream import LiveStream, StreamRequest
from audiokv.server.stream_refusals import (
    full,
    gave_way,
    unknown_resume,
    unknown_stream,
)
from audiokv.streaming.channels import check_labels
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import AUTO_LANGUAGE, Limits, Ready, Update
from audiokv.streaming.policy.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from audiokv.models.base import RecognizerInfo
    from audiokv.server.clock import Clock, Timer
    from audiokv.server.config import ServerConfig
    from audiokv.server.hub import Listener
    from audiokv.server.sessions import OpenSession
    from audiokv.server.worker import Worker
    from audiokv.streaming.messages import Resume, Start

logger = logging.getLogger(__name__)

# A stream without its source gives way to a new one only after this time.
MIN_AWAY_S = 10.0
# Streams that are over and wait for their source to fetch the end, for each that may run.
MAX_OVER_PER_STREAM = 4


@dataclass(slots=True)
class _Entry:
    """A stream and what only the registry knows about it."""

    stream: LiveStream
    resume_token: str
    away_since_s: float | None = None
    min_away_s: float = MIN_AWAY_S
    expiry: Timer | None = None

    def cancel_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
        self.expiry = None
        self.away_since_s = None


class StreamRegistry:
    """Keeps every stream from its start until all was said and delivered, or its window is over.

    Args:
        config: The server's settings.
        info: What the recogniser can do.
        worker: Runs the streams.
        open_session: Makes the sessions of a stream's channels.
        clock: The server's clock.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        info: RecognizerInfo,
        worker: Worker,
        open_session: OpenSession,
        clock: Clock,
    ) -> None:
        self._config = config
        self._info = info
        self._worker = worker
        self._open_session = open_session
        self._clock = clock
        self._by_name: dict[str, _Entry] = {}
        self._by_token: dict[str, _Entry] = {}
        self._followers: list[Callable[[LiveStream], Listener]] = []

    @property
    def n_streams(self) -> int:
        """Streams that still recognise."""
        return sum(not entry.stream.is_over for entry in self._by_name.values())

    @property
    def n_kept(self) -> int:
        """Streams in memory, also those that are over and wait for their source to hear it."""
        return len(self._by_name)

    @property
    def n_viewers(self) -> int:
        """Viewers of all streams."""
        return sum(entry.stream.hub.n_viewers for entry in self._by_name.values())

    @property
    def live_lag_ms(self) -> int:
        """How far the slowest stream with a source is behind real time."""
        present = (e.stream for e in self._by_name.values() if e.away_since_s is None)
        return max((s.live_lag_ms for s in present if not s.is_over), default=0)

    @property
    def is_overloaded(self) -> bool:
        """Whether existing streams lag so much that a new one would harm them."""
        return self.live_lag_ms > self._config.max_live_lag_ms

    def options_of(self, wishes: Start | Update, known: StreamOptions) -> StreamOptions:
        """Return a source's wishes on top of what it wished before.

        Raises:
            MessageError: The language or profile is not known, or the profile would change.
        """
        language = known.language
        if wishes.language is not None:
            language = None if wishes.language == AUTO_LANGUAGE else wishes.language
        profile = known.profile if wishes.profile is None else wishes.profile
        if language is not None and language not in self._info.languages:
            raise MessageError(
                "unknown_language",
                f"The language {language!r} is not among those of {self._info.name}.",
                f"Use auto or one of {', '.join(sorted(self._info.languages))}.",
            )
        if profile not in PROFILES:
            raise MessageError(
                "unknown_profile",
                f"The profile {profile!r} is not known.",
                f"Use one of {', '.join(PROFILES)}.",
            )
        if isinstance(wishes, Update) and profile != known.profile:
            raise MessageError(
                "profile_fixed",
                f"The profile {known.profile!r} cannot change within a stream.",
                "Say it in start.",
            )
        prompt = known.prompt if wishes.prompt is None else wishes.prompt
        return StreamOptions(language=language, prompt=prompt, profile=profile)

    def follow(self, open_listener: Callable[[LiveStream], Listener]) -> None:
        """Hear all streams that open from now on: each is announced by asking for its listener.

        This is the way for a publisher or a store. It hears what a viewer hears, from the stream's
        first event to `Listener.end` or `Listener.fail`, and does not count as a viewer.

        Args:
            open_listener: Returns the listener of a stream; called on the event loop as the stream
                opens, when its name, format, options and metadata are known. It must not raise.
        """
        self._followers.append(open_listener)

    def open(
        self, start: Start, outbox: Listener, metadata: Mapping[str, str] | None = None
    ) -> LiveStream:
        """Begin a stream with a connection as its source.

        Args:
            start: What the source wishes.
            outbox: Hears what the stream says.
            metadata: What the source's protocol says about it.

        Raises:
            AudioFormatError: The audio cannot be decoded.
            MessageError: A wish cannot be met.
            RefusalError: The server is full.
        """
        fmt = start.audio_format()
        check_labels(start.channel_labels, start.channels)
        options = self.options_of(start, StreamOptions())
        self._make_room()
        name = f"s-{secrets.token_hex(8)}"
        stream = LiveStream(
            StreamRequest(name, fmt, options, metadata or {}),
            worker=self._worker,
            open_session=partial(self._open_session, fmt, options, start.channel_labels),
            clock=self._clock,
            on_over=self._on_over,
        )
        entry = _Entry(stream, f"r-{secrets.token_urlsafe(24)}")
        self._by_name[name] = self._by_token[entry.resume_token] = entry
        stream.hub.attach_source(outbox, self._ready(entry, is_resumed=False), 0)
        for open_listener in self._followers:
            ready = self._ready(entry, is_resumed=False, is_viewer=True)
            stream.hub.attach_follower(open_listener(stream), ready)
        logger.info("stream %s opened, %d of %d", name, self.n_streams, self._config.max_streams)
        return stream

    def resume(self, start: Start, resume: Resume, outbox: Listener) -> LiveStream:
        """Make a connection the source of an earlier stream; an older connection is closed.

        Raises:
            AudioFormatError: The audio cannot be decoded.
            MessageError: The request does not fit the stream.
            RefusalError: The stream is not known (any more).
        """
        entry = self._by_token.get(resume.token)
        if entry is None:
            raise unknown_resume()
        stream = entry.stream
        if start.audio_format() != stream.fmt:
            raise MessageError(
                "resume_mismatch",
                "The audio format differs from the one the stream began with.",
                "Repeat the same start, with resume.",
            )
        if resume.last_seq > stream.hub.last_seq:
            raise MessageError(
                "bad_resume",
                f"Caption {resume.last_seq} was never sent; the last is {stream.hub.last_seq}.",
                "Send the seq of the last caption received.",
            )
        entry.cancel_expiry()
        stream.drop_part()
        ready = self._ready(entry, is_resumed=True)
        stream.hub.attach_source(outbox, ready, resume.last_seq)
        logger.info("stream %s resumed at %d ms", stream.name, stream.received_ms)
        return stream

    def watch(self, name: str, outbox: Listener) -> LiveStream:
        """Add a viewer to a stream.

        Raises:
            RefusalError: The stream is not known, or has too many viewers.
        """
        entry = self._by_name.get(name)
        if entry is None:
            raise unknown_stream(name)
        hub = entry.stream.hub
        if hub.n_viewers >= self._config.max_viewers:
            raise full("too_many_viewers", f"The stream has {hub.n_viewers} viewers already.")
        hub.attach_viewer(outbox, self._ready(entry, is_resumed=False, is_viewer=True))
        return entry.stream

    def leave(
        self, stream: LiveStream, outbox: Listener, *, is_delivered: bool, is_at_fault: bool = False
    ) -> None:
        """Note that a source's connection is gone.

        Args:
            stream: Its stream.
            outbox: The connection's outbox; ignored when another connection took over.
            is_delivered: Whether the source is known to have received everything.
            is_at_fault: Whether the source was refused: its stream gives way at once to others.
        """
        entry = self._by_name.get(stream.name)
        if entry is None or stream.hub.source is not outbox:
            return
        stream.hub.detach_source()
        stream.drop_part()
        if stream.is_over and is_delivered:
            self._remove(entry)
            return
        logger.info("stream %s lost its source at %d ms", stream.name, stream.received_ms)
        entry.away_since_s = self._clock.now_s()
        entry.min_away_s = 0.0 if is_at_fault else MIN_AWAY_S
        entry.expiry = self._clock.call_later(
            self._config.resume_window_s, partial(self._expire, entry)
        )

    def leave_for_good(self, stream: LiveStream, listener: Listener) -> None:
        """Note that a source that cannot come back is gone; its viewers hear the rest."""
        entry = self._by_name.get(stream.name)
        if entry is None or stream.hub.source is not listener:
            return
        stream.hub.detach_source()
        stream.drop_part()
        entry.away_since_s = self._clock.now_s()
        entry.min_away_s = 0.0
        self._expire(entry)

    def close(self) -> None:
        """Drop every stream; the server goes away."""
        for entry in list(self._by_name.values()):
            entry.stream.drop()
            self._remove(entry)

    def _make_room(self) -> None:
        if self.is_overloaded:
            raise full("overloaded", f"The streams here lag by {self.live_lag_ms} ms.")
        n_over = self.n_kept - self.n_streams
        if n_over >= self._config.max_streams * MAX_OVER_PER_STREAM:
            self._remove(next(e for e in self._by_name.values() if e.stream.is_over))
        if self.n_streams < self._config.max_streams:
            return
        away = [e for e in self._by_name.values() if self._may_give_way(e)]
        if not away:
            raise full("full", f"All {self._config.max_streams} streams are taken.")
        longest = min(away, key=lambda entry: entry.away_since_s or 0.0)
        longest.stream.hub.fail(gave_way())
        longest.stream.drop()
        self._remove(longest)

    def _may_give_way(self, entry: _Entry) -> bool:
        since_s = entry.away_since_s
        return (
            since_s is not None
            and not entry.stream.is_over
            and self._clock.now_s() - since_s >= entry.min_away_s
        )

    def _expire(self, entry: _Entry) -> None:
        """End a stream whose source did not come back; its viewers hear the rest."""
        self._by_token.pop(entry.resume_token, None)
        if entry.stream.is_over:
            self._remove(entry)
        else:
            entry.stream.stop()

    def _on_over(self, stream: LiveStream) -> None:
        entry = self._by_name.get(stream.name)
        if entry is None:
            return
        logger.info(
            "stream %s over after %d ms, %d segments",
            stream.name,
            stream.received_ms,
            stream.hub.n_segments,
        )
        is_expired = entry.resume_token not in self._by_token
        if stream.has_failed or is_expired:
            self._remove(entry)

    def _remove(self, entry: _Entry) -> None:
        entry.cancel_expiry()
        self._by_name.pop(entry.stream.name, None)
        self._by_token.pop(entry.resume_token, None)

    def _ready(self, entry: _Entry, *, is_resumed: bool, is_viewer: bool = False) -> Ready:
        config = self._config
        return Ready(
            stream=entry.stream.name,
            model=self._info.name,
            languages=tuple(sorted(self._info.languages)),
            limits=Limits(
                max_message_bytes=config.max_message_bytes,
                idle_timeout_s=config.idle_timeout_s,
                resume_window_s=config.resume_window_s,
                max_unacknowledged_ms=config.max_unacknowledged_ms,
            ),
            resume_token=None if is_viewer else entry.resume_token,
            resumed=is_resumed,
            received_samples=entry.stream.received_samples,
            metadata=entry.stream.told,
        )
