"""From payloads to the samples of a stream: decoded, at one rate, nothing invented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from audiokv.server.telephony.codecs import bad_payload
from audiokv.streaming.resampler import StreamResampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.server.telephony.codecs import Codec, PayloadDecoder

_PEAK = 32_767


@dataclass(frozen=True, slots=True)
class _Opened:
    codec: Codec
    decoder: PayloadDecoder
    resampler: StreamResampler


class PacketAudio:
    """Decodes payloads that follow each other, whatever their codecs, to 16 kHz.

    The resampler holds the newest 2.5 ms back; `flush` gives them out, so that in all exactly as
    much audio comes out as went in.
    """

    def __init__(self) -> None:
        self._opened: _Opened | None = None

    def push(self, codec: Codec, payload: bytes) -> bytes:
        """Return pcm_s16le, 16 kHz mono, that the payloads so far decide.

        Args:
            codec: Codec of this payload.
            payload: Directly follows the one before.

        Raises:
            MessageError: ``bad_payload``: it is broken. What was held back still is.
        """
        opened = self._opened
        if opened is None or opened.codec is not codec:
            opened = _Opened(codec, codec.open(), StreamResampler(codec.sample_rate_hz))
        samples = opened.decoder.decode(payload)
        if len(samples) * codec.clock_hz != codec.ticks_of(payload) * codec.sample_rate_hz:
            raise bad_payload(codec.name, payload)
        before = b"" if opened is self._opened else self.flush()
        self._opened = opened
        return before + _packed(opened.resampler.push(samples.astype(np.float32)))

    def flush(self) -> bytes:
        """Return what was held back; the next payload is decoded without knowledge of these."""
        opened, self._opened = self._opened, None
        return b"" if opened is None else _packed(opened.resampler.flush())


def _packed(samples: NDArray[np.float32]) -> bytes:
    return np.clip(np.rint(samples), -_PEAK - 1, _PEAK).astype("<i2").tobytes()
