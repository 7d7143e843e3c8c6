"""What a link is told: where it goes, what it sends, how patient it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from audiokv.client.failures import LinkError
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.messages import AUTO_LANGUAGE, Start

DEFAULT_URL = "ws://127.0.0.1:8765/v1/stream"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Where a link goes, what it sends, and how patient it is.

    Attributes:
        url: Address of the server's ``/v1/stream``.
        audio_format: Format of the audio.
        language: ISO 639-1 code or ``auto``.
        profile: Name of the acoustic profile.
        prompt: Names and jargon to expect.
        channel_labels: Speaker label of each channel, or empty.
        token: Bearer token of the server, or None.
        patience_s: Seconds without any success after which the link gives up.
        silence_timeout_s: Seconds without a sign of life after which a connection counts as lost.
        max_offered_ms: Audio of a live source kept through an outage; the oldest goes first.

    Raises:
        LinkError: The token cannot be sent in a header.
    """

    url: str = DEFAULT_URL
    audio_format: AudioFormat = field(default_factory=AudioFormat)
    language: str = AUTO_LANGUAGE
    profile: str = "default"
    prompt: str = ""
    channel_labels: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    patience_s: float = 60.0
    silence_timeout_s: float = 10.0
    max_offered_ms: int = 300_000

    def __post_init__(self) -> None:
        """Refuse a token that would break the request."""
        if self.token and not all("!" <= char <= "~" for char in self.token):
            raise LinkError(
                "bad_token",
                "The token has characters that cannot be sent.",
                "Use letters, digits and ASCII punctuation, without spaces.",
            )

    def start(self) -> Start:
        """Return the message that opens a stream."""
        return Start(
            encoding=self.audio_format.encoding.value,
            sample_rate=self.audio_format.sample_rate_hz,
            channels=self.audio_format.channels,
            language=self.language,
            profile=self.profile,
            prompt=self.prompt,
            channel_labels=self.channel_labels,
        )
