"""From what a source names its codec to audio that the stream takes."""

from __future__ import annotations

import numpy as np

from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    SAMPLE_BYTES,
    SAMPLE_RATE_HZ,
    AudioFormat,
    Encoding,
)
from audiokv.streaming.errors import MessageError
from audiokv.streaming.resampler import StreamResampler

MAX_CALL_HZ = 192_000
_PEAK = 32_767
_NAMES = {
    Encoding.MULAW: ("mulaw", "ulaw", "pcmu", "basic"),
    Encoding.ALAW: ("alaw", "pcma"),
    Encoding.PCM_S16LE: ("l16", "raw", "linear16", "pcm16", "pcm", "pcm_s16le", "slin"),
}
_BY_NAME = {name: encoding for encoding, names in _NAMES.items() for name in names}


def encoding_named(name: str) -> Encoding:
    """Return the encoding behind a name like ``audio/x-mulaw``, ``PCMA``, ``audio/l16;rate=8000``.

    Raises:
        MessageError: The codec cannot be decoded here.
    """
    plain = name.lower().partition(";")[0].strip()
    plain = plain.removeprefix("audio/").removeprefix("x-")
    encoding = _BY_NAME.get(plain)
    if encoding is None:
        raise MessageError(
            "unsupported_codec",
            f"The codec {name[:40]!r} cannot be decoded here.",
            "Let the source send G.711 (mu-law or A-law) or linear 16-bit audio.",
        )
    return encoding


class CallAudio:
    """Takes audio of any rate up to 192 kHz; a rate too high for the stream is brought down.

    Args:
        encoding: Encoding of a sample.
        rate_hz: Samples per second and channel.
        channels: 1 or 2, interleaved.

    Attributes:
        fmt: Format of what `push` returns.

    Raises:
        MessageError: The audio cannot be decoded.
    """

    def __init__(self, encoding: Encoding, rate_hz: int, channels: int = 1) -> None:
        is_fast = rate_hz > MAX_SAMPLE_RATE_HZ
        is_known = MIN_SAMPLE_RATE_HZ <= rate_hz <= MAX_CALL_HZ and channels in (1, 2)
        if not is_known or (is_fast and (channels, encoding) != (1, Encoding.PCM_S16LE)):
            raise MessageError(
                "unsupported_audio",
                f"Audio of {rate_hz} Hz in {channels} channels as {encoding} cannot be taken.",
                f"Send one or two channels of {MIN_SAMPLE_RATE_HZ} to {MAX_SAMPLE_RATE_HZ} Hz.",
            )
        self.fmt = AudioFormat(encoding, SAMPLE_RATE_HZ if is_fast else rate_hz, channels)
        self._resampler = StreamResampler(rate_hz) if is_fast else None
        self._part = b""

    def push(self, audio: bytes) -> bytes:
        """Return audio as `fmt` says; bytes may be split anywhere."""
        if self._resampler is None:
            return audio
        held = self._part + audio
        cut = len(held) - len(held) % SAMPLE_BYTES[Encoding.PCM_S16LE]
        self._part = held[cut:]
        samples = np.frombuffer(held[:cut], "<i2").astype(np.float32)
        slow = np.rint(self._resampler.push(samples))
        return np.clip(slow, -_PEAK - 1, _PEAK).astype("<i2").tobytes()
