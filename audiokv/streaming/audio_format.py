"""The shape of incoming audio, and the one shape everything inside uses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from audiokv.streaming.errors import AudioFormatError

SAMPLE_RATE_HZ = 16_000
FRAME_MS = 10
FRAME_SAMPLES = SAMPLE_RATE_HZ * FRAME_MS // 1000

MIN_SAMPLE_RATE_HZ = 8_000
MAX_SAMPLE_RATE_HZ = 48_000


class Encoding(StrEnum):
    """Sample encodings a source may send."""

    PCM_S16LE = "pcm_s16le"
    PCM_F32LE = "pcm_f32le"
    MULAW = "mulaw"
    ALAW = "alaw"


# The byte of which a silent sample consists.
SILENCE_BYTE = {
    Encoding.PCM_S16LE: b"\x00",
    Encoding.PCM_F32LE: b"\x00",
    Encoding.MULAW: b"\xff",
    Encoding.ALAW: b"\xd5",
}
SAMPLE_BYTES = {Encoding.PCM_S16LE: 2, Encoding.PCM_F32LE: 4, Encoding.MULAW: 1, Encoding.ALAW: 1}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """What a source declares about its audio.

    Attributes:
        encoding: Encoding of one sample.
        sample_rate_hz: 8,000 to 48,000.
        channels: 1 or 2, interleaved.

    Raises:
        AudioFormatError: The encoding is unknown, or rate or channel count out of range.
    """

    encoding: Encoding = Encoding.PCM_S16LE
    sample_rate_hz: int = SAMPLE_RATE_HZ
    channels: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be decoded."""
        if self.encoding not in set(Encoding):
            raise AudioFormatError(
                "unknown_encoding",
                f"The encoding {str(self.encoding)!r} is not known.",
                f"Use one of {', '.join(Encoding)}.",
            )
        if not MIN_SAMPLE_RATE_HZ <= self.sample_rate_hz <= MAX_SAMPLE_RATE_HZ:
            raise AudioFormatError(
                "bad_sample_rate",
                f"The sample rate {self.sample_rate_hz} Hz is out of range.",
                f"Send audio of {MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ} Hz.",
            )
        if self.channels not in (1, 2):
            raise AudioFormatError(
                "bad_channels",
                f"{self.channels} channels are not supported.",
                "Send one or two channels.",
            )

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return SAMPLE_BYTES[self.encoding] * self.channels

    @property
    def bytes_per_second(self) -> int:
        """Bytes of one second of audio."""
        return self.frame_bytes * self.sample_rate_hz
