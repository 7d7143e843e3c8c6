"""What a foreign protocol is to the server: a pure mapping of its messages to a few commands.

A dialect opens no socket, waits for nothing and reads no clock. `DialectDialogue` runs it over a
connection; `routes` says at which path or port.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from audiokv.streaming.captions import Caption, Notice, SpeechChange
from audiokv.streaming.messages import Done, Progress, Ready

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.server.refusals import RefusalError
    from audiokv.streaming.audio_format import AudioFormat


@dataclass(frozen=True, slots=True)
class Opening:
    """How a connection was opened, and at what server.

    Attributes:
        path: Path of the address, without the query; empty over plain TCP.
        query: Decoded values of each parameter of the address, in order.
        headers: Headers of the request, names in lower case; of a repeated one the first.
        model: Name of the recogniser.
        languages: ISO 639-1 codes it knows.
        pause_ms: Silence that ends a caption.
    """

    path: str = ""
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    languages: frozenset[str] = frozenset()
    pause_ms: int = 450


@dataclass(frozen=True, slots=True)
class Begin:
    """Open the stream; once a connection.

    Attributes:
        fmt: Format of the audio that follows.
        language: ISO 639-1 code, or None to detect it.
        prompt: Names and jargon to expect.
        profile: Name of the acoustic profile.
        channel_labels: Speaker label of each channel, or empty.
        metadata: What the protocol says about the source, such as the number of a call.
    """

    fmt: AudioFormat
    language: str | None = None
    prompt: str = ""
    profile: str = "default"
    channel_labels: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Audio:
    """Take audio, encoded as the format says, split anywhere.

    `Taken` follows each audio, once the stream can take more.

    Attributes:
        data: The audio.
        max_ahead_ms: Audio that may wait for its recognition although it came before its time in
            real time, or None for as much as the server allows. For protocols that answer each
            message with what was recognised in it.
    """

    data: bytes
    max_ahead_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Let the stream's clock go on over audio that is known to be lost."""

    duration_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """Change wishes in mid-stream; None leaves one as it is."""

    language: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Finalize:
    """End the open segment here; `Finalized` follows once everything before was said."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the stream after the audio so far; the rest of the captions and `Done` follow.

    Where no stream was begun the connection is closed as after `Done`.
    """


@dataclass(frozen=True, slots=True)
class Reply:
    """Send a message at once, in order with what ``say`` returns; bytes go out as binary."""

    message: str | bytes


Command = Begin | Audio | Gap | Change | Finalize | Stop | Reply


@dataclass(frozen=True, slots=True)
class Taken:
    """The oldest `Audio` not yet answered was taken, and the stream has room for more."""


@dataclass(frozen=True, slots=True)
class Finalized:
    """Everything up to the oldest `Finalize` not yet answered has been said."""


# `Progress` comes as audio is taken, and as recognition moves on.
Event = Ready | Caption | SpeechChange | Notice | Progress | Taken | Finalized | Done


@dataclass(frozen=True, slots=True)
class Farewell:
    """How a connection ends.

    Attributes:
        messages: What is still sent.
        close_code: Close code of a WebSocket; means nothing over plain TCP.
        reason: Reason of the close; cut where a WebSocket has no room for it.
    """

    messages: list[str | bytes] = field(default_factory=list)
    close_code: int = 1000
    reason: str = ""


class Dialect(Protocol):
    """The state of one connection in a foreign protocol.

    Attributes:
        tick_every_s: Time between two calls of ``tick``, or None for none.
        idle_timeout_s: Time without a message after which the connection is refused as idle; None
            takes the server's setting.
        can_wait: Whether the source may be made to wait while recognition is behind. Of one that
            may not, audio is dropped then, and becomes a gap.
    """

    tick_every_s: float | None
    idle_timeout_s: float | None
    can_wait: bool

    def open(self, opening: Opening) -> list[Command]:
        """Take the connection's opening.

        Raises:
            MessageError: The opening cannot be understood.
            RefusalError: The client may not do this.
        """

    def hear(self, message: str | bytes) -> list[Command]:
        """Take a message; over plain TCP any piece of the byte stream.

        Raises:
            MessageError: The message cannot be understood; nothing else, whatever comes.
        """

    def say(self, event: Event) -> list[str | bytes]:
        """Return the messages that tell an event; over plain TCP, bytes to send."""

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Return how the connection ends when the server ends it."""

    def done(self) -> Farewell:
        """Return how the connection ends once `Done` was told."""

    def tick(self) -> list[str | bytes]:
        """Return what is sent at regular times."""

    def miss(self, more_ms: int) -> list[Command]:
        """Take that nothing has come for some seconds.

        Told every second from then on, and once more when a message comes, before it.

        Args:
            more_ms: Time without a message that was not told yet.
        """


class PlainDialect:
    """What most dialects have in common: no heartbeat, the server's patience, no words at the end.

    To be derived from by dialects that need no more.
    """

    tick_every_s: float | None = None
    idle_timeout_s: float | None = None
    can_wait: bool = True

    def miss(self, more_ms: int) -> list[Command]:
        """Wait: the source may pause as it likes."""
        del more_ms
        return []

    def tick(self) -> list[str | bytes]:
        """Say nothing."""
        return []

    def done(self) -> Farewell:
        """Close as after a success."""
        return Farewell(reason="done")


def base_language(tag: str) -> str:
    """Return the language of a BCP 47 tag in lower case: ``en`` for ``en-US`` and ``en_us``."""
    return tag.replace("_", "-").partition("-")[0].lower()
