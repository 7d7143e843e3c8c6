"""The messages of the native protocol, version 1, as docs/protocol.md specifies them.

Three of the server's messages are the events a stream produces anyway: ``caption`` is a `Caption`,
``speech`` a `SpeechChange`, ``warning`` a `Notice`. Every other message has its own class here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption, Notice, SpeechChange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.recognition_counts import RecognitionCounts

PROTOCOL_VERSION = 1
SUBPROTOCOL = "audiokv.v1"
BEARER_SUBPROTOCOL_PREFIX = "bearer."

AUTO_LANGUAGE = "auto"


@dataclass(frozen=True, slots=True)
class Resume:
    """A wish to go on with a stream whose connection was lost.

    Attributes:
        token: The ``resume_token`` of ``ready``.
        last_seq: ``seq`` of the last caption received, 0 if none.
    """

    token: str
    last_seq: int


@dataclass(frozen=True, slots=True)
class Start:
    """Opens a stream; the first message of a source.

    Attributes:
        encoding: Name of the sample encoding, not yet checked.
        sample_rate: Samples per second and channel, not yet checked.
        channels: Interleaved channels, not yet checked.
        language: ISO 639-1 code or ``auto``.
        profile: Name of the acoustic profile.
        prompt: Names and jargon to expect.
        channel_labels: Speaker label of each channel, or empty.
        resume: Set to go on with an earlier stream.
        version: Version of the protocol.
    """

    encoding: str
    sample_rate: int
    channels: int = 1
    language: str = AUTO_LANGUAGE
    profile: str = "default"
    prompt: str = ""
    channel_labels: tuple[str, ...] = ()
    resume: Resume | None = None
    version: int = PROTOCOL_VERSION

    def audio_format(self) -> AudioFormat:
        """Return the declared format.

        Raises:
            AudioFormatError: Encoding, rate or channels cannot be decoded.
        """
        known = {encoding.value: encoding for encoding in Encoding}
        encoding = known.get(self.encoding, cast("Encoding", self.encoding))
        return AudioFormat(encoding, self.sample_rate, self.channels)


@dataclass(frozen=True, slots=True)
class Update:
    """Changes wishes in mid-stream; None leaves a wish as it is."""

    language: str | None = None
    prompt: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Finalize:
    """Closes the open segment now; the stream goes on."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Keeps an idle stream open."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the stream; the remaining captions and ``done`` follow."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server grants a source.

    Attributes:
        max_message_bytes: Size of one message.
        idle_timeout_s: Seconds without any message after which the server closes.
        resume_window_s: Seconds a stream outlives its lost connection.
        max_unacknowledged_ms: Audio a sender may be ahead of the last ``progress``.
    """

    max_message_bytes: int
    idle_timeout_s: float
    resume_window_s: float
    max_unacknowledged_ms: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The stream is open.

    Attributes:
        stream: Public name of the stream, for viewers.
        model: Name of the recogniser.
        languages: ISO 639-1 codes it knows.
        limits: What the source may do.
        resume_token: Secret of the source; None towards viewers.
        resumed: Whether an earlier stream goes on.
        received_samples: Samples per channel held by the server, at the source's rate.
        version: Version of the protocol.
        metadata: What the source's protocol told about it, such as who calls whom; None where it
            told nothing. Personal data.
    """

    stream: str
    model: str
    languages: tuple[str, ...]
    limits: Limits
    resume_token: str | None = None
    resumed: bool = False
    received_samples: int = 0
    version: int = PROTOCOL_VERSION
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the server is; also the acknowledgement of received audio.

    Attributes:
        received_ms: Audio received.
        received_samples: The same in samples per channel, at the source's rate.
        processed_ms: Audio recognised.
        lag_ms: Audio received and not yet recognised.
        cache: What the recogniser's audio cache holds, where it has a budget.
        recognition: What went wrong with the recognition and was put right, where anything did.
    """

    received_ms: int
    received_samples: int
    processed_ms: int
    lag_ms: int
    cache: CacheCounters | None = None
    recognition: RecognitionCounts | None = None


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Why the server is about to close the connection (``error`` on the wire).

    Attributes:
        code: Stable identifier.
        message: What is wrong, naming the input.
        remedy: What the client can do about it.
        retry_after_s: Seconds after which trying again may succeed, or None.
    """

    code: str
    message: str
    remedy: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Everything has been said.

    Attributes:
        received_ms: Length of the stream.
        segments: Number of segments it had.
    """

    received_ms: int
    segments: int


ClientMessage = Start | Update | Finalize | Keepalive | Stop
ServerMessage = Ready | Caption | SpeechChange | Progress | Notice | ErrorReport | Done
