"""From the bytes a source sends to the one shape everything inside uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.audio_format import FRAME_SAMPLES, Encoding
from audiokv.streaming.errors import AudioFormatError
from audiokv.streaming.g711 import decode_alaw, decode_mulaw
from audiokv.streaming.resampler import StreamResampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from audiokv.streaming.audio_format import AudioFormat

    FloatArray = NDArray[np.float32]

_INT16_SCALE = np.float32(1 / 32_768)
_MAX_PLAUSIBLE = 8.0  # above this, floats are not loud audio but integers in a float's clothes


class Framer:
    """Turns the audio bytes of one source into whole 10 ms frames at 16 kHz, mono, float32.

    The frames do not depend on how the bytes were cut into messages. Two channels are averaged.
    Floats beyond -1 ... 1 are clipped, as a sound card would.

    Args:
        fmt: What the source declared.
    """

    def __init__(self, fmt: AudioFormat) -> None:
        self._fmt = fmt
        self._decode = _DECODERS[fmt.encoding]
        self._resampler = StreamResampler(fmt.sample_rate_hz)
        self._bytes = b""  # less than one sample of all channels
        self._samples = np.zeros(0, np.float32)  # less than one frame
        self._n_received = 0
        self._n_dropped_bytes = 0

    @property
    def received_samples(self) -> int:
        """Whole samples per channel received so far, at the source's own rate."""
        return self._n_received

    @property
    def received_ms(self) -> int:
        """Length of the audio received so far, rounded down."""
        return self._n_received * 1000 // self._fmt.sample_rate_hz

    @property
    def dropped_bytes(self) -> int:
        """Bytes of a half-sent sample that `flush` had to drop; 0 until then."""
        return self._n_dropped_bytes

    def push(self, audio: bytes) -> FloatArray:
        """Return the whole frames that the bytes so far complete.

        Args:
            audio: Any number of bytes; may begin and end inside a sample.

        Returns:
            Shape (n * 160,), 16 kHz mono float32 between -1 and 1 (a resampled peak may pass 1 by a
            little); n may be 0.

        Raises:
            AudioFormatError: ``bad_samples``: the floats are NaN, infinite, or not audio. The
                stream cannot go on.
            ValueError: The stream was flushed.
        """
        held = self._bytes + audio
        n_whole = len(held) // self._fmt.frame_bytes
        cut = n_whole * self._fmt.frame_bytes
        self._bytes = held[cut:]
        mono = self._to_mono(self._decode(held[:cut]))
        self._n_received += n_whole
        return self._take_frames(self._resampler.push(mono))

    def flush(self) -> FloatArray:
        """End the stream and return what is left, its last frame filled up with zeros.

        Returns:
            Shape (n * 160,), as from `push`; empty when called again.
        """
        self._n_dropped_bytes += len(self._bytes)
        self._bytes = b""
        frames = self._take_frames(self._resampler.flush())
        rest, self._samples = self._samples, np.zeros(0, np.float32)
        n_missing = -len(rest) % FRAME_SAMPLES
        return np.concatenate([frames, rest, np.zeros(n_missing, np.float32)])

    def _to_mono(self, samples: FloatArray) -> FloatArray:
        if self._fmt.channels == 1:
            return samples
        return (samples[0::2] + samples[1::2]) * np.float32(0.5)

    def _take_frames(self, samples: FloatArray) -> FloatArray:
        held = np.concatenate([self._samples, samples])
        cut = len(held) // FRAME_SAMPLES * FRAME_SAMPLES
        self._samples = held[cut:]
        return held[:cut]


def _decode_s16le(audio: bytes) -> FloatArray:
    return np.frombuffer(audio, "<i2").astype(np.float32) * _INT16_SCALE


def _decode_mulaw(audio: bytes) -> FloatArray:
    return decode_mulaw(audio).astype(np.float32) * _INT16_SCALE


def _decode_alaw(audio: bytes) -> FloatArray:
    return decode_alaw(audio).astype(np.float32) * _INT16_SCALE


def _decode_f32le(audio: bytes) -> FloatArray:
    samples = np.frombuffer(audio, "<f4").astype(np.float32)
    if not np.isfinite(samples).all():
        raise AudioFormatError(
            "bad_samples",
            "The audio holds samples that are NaN or infinite.",
            "Send finite pcm_f32le samples between -1 and 1, little-endian.",
        )
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > _MAX_PLAUSIBLE:
        raise AudioFormatError(
            "bad_samples",
            f"The audio holds a float sample of size {peak:.4g}; the full scale is 1.",
            "If these are integer samples, send them as pcm_s16le or divide them by 32768.",
        )
    return np.clip(samples, np.float32(-1), np.float32(1))


_DECODERS: dict[Encoding, Callable[[bytes], FloatArray]] = {
    Encoding.PCM_S16LE: _decode_s16le,
    Encoding.PCM_F32LE: _decode_f32le,
    Encoding.MULAW: _decode_mulaw,
    Encoding.ALAW: _decode_alaw,
}
