"""What a scripted server is to say and do, and what it notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Message = dict[str, Any]

PROGRESS_MS = 250
BLANK: Message = {"type": "caption", "revision": 0, "language": "en", "speaker": None}


@dataclass
class Script:
    """What the server says and does.

    Attributes:
        captions: Pairs of a position in the audio, in ms, and the caption sent there.
        later_captions: The same for streams after the first.
        cut_at_ms: Positions at which the connection is cut, each once.
        away_s: How long connections are refused after a cut.
        lost_ms: Audio before a cut that never arrived; none that was acknowledged.
        is_forgetful: Whether a cut stream is unknown afterwards.
        token: The token wanted, or "".
        is_token_checked_late: Refuse by a close code instead of by the handshake.
        n_full: How many attempts are told that the server is full.
        retry_after_s: What those are told to wait.
        error: An error to send where a progress is due, with its close code.
        n_errors: How often.
        unacknowledged_ms: Limit that the server states.
        watch_error: An error that meets every viewer, with its close code.
        is_mute: Whether the server takes audio without ever saying that it did.
        cache: What every progress says about the audio cache, if anything.
    """

    captions: Sequence[tuple[int, Message]] = ()
    later_captions: Sequence[tuple[int, Message]] = ()
    cut_at_ms: Sequence[int] = ()
    away_s: float = 0.0
    lost_ms: int = 0
    is_forgetful: bool = False
    token: str = ""
    is_token_checked_late: bool = False
    n_full: int = 0
    retry_after_s: float = 0.2
    error: tuple[Message, int] | None = None
    n_errors: int = 1
    unacknowledged_ms: int = 10_000
    is_mute: bool = False
    watch_error: tuple[Message, int] | None = None
    cache: Message | None = None


@dataclass
class StreamRecord:
    """One stream as the server got it."""

    name: str
    start: Message
    metadata: dict[str, str] = field(default_factory=dict)
    audio: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)
    controls: list[Message] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    n_said: int = 0
    next_progress_ms: int = PROGRESS_MS
    n_acknowledged: int = 0
    is_done: bool = False

    @property
    def received_ms(self) -> int:
        """Length of the audio."""
        return self.n_samples * 1000 // int(self.start["sample_rate"])

    @property
    def n_samples(self) -> int:
        """Samples of the audio."""
        return len(self.audio) // 2


def caption_message(segment: int, text: str, n_final: int | None = None, **more: object) -> Message:
    """Return a caption of words 300 ms apart.

    Args:
        segment: Number of the segment.
        text: Words, separated by spaces.
        n_final: How many words are committed; None for all of a final caption.
        more: Further fields; ``at_ms`` is where the first word begins.
    """
    begin_ms = int(str(more.pop("at_ms", 0)))
    words = [
        {
            "text": word,
            "start_ms": begin_ms + 300 * i,
            "end_ms": begin_ms + 300 * i + 250,
            "confidence": 0.9,
            "final": n_final is None or i < n_final,
            "space_before": True,
        }
        for i, word in enumerate(text.split())
    ]
    end_ms = begin_ms + 300 * len(words) - 50 if words else begin_ms
    message: Message = {"segment": segment, "final": n_final is None, "text": text, "words": words}
    return {**message, "start_ms": begin_ms, "end_ms": end_ms, **more}
