"""Codecs of calls over RTP: what they are called, how they count time, how they are decoded.

G.711 and G.722 count 8,000 ticks in a second, though G.722 carries 16 kHz audio (RFC 3551, section
4.5.2); Opus counts 48,000 whatever it carries (RFC 7587). G.722 and Opus are decoded by FFmpeg's
libraries, through PyAV.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import av
import numpy as np

from audiokv.streaming.errors import MessageError
from audiokv.streaming.g711 import decode_alaw, decode_mulaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Int16Array = NDArray[np.int16]

_INT16_PEAK = 32_768
_OPUS_HZ = 48_000
_MAX_OPUS_TICKS = _OPUS_HZ * 120 // 1000  # RFC 6716, section 3.4: no packet is longer
_MAX_DYNAMIC_TYPE = 127


class PayloadDecoder(Protocol):
    """Decodes the payloads of one sender, in order; keeps what a payload needs of those before."""

    def decode(self, payload: bytes) -> Int16Array:
        """Return the samples of a payload, shape (n,), at the codec's sample rate.

        Raises:
            MessageError: The payload is broken.
        """


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec of calls.

    Attributes:
        name: Its encoding name in session descriptions.
        clock_hz: Ticks in a second of its RTP timestamps.
        sample_rate_hz: Of what its decoder gives.
        ticks_of: Gives the length of a payload in ticks; 0 where it is broken.
        open: Gives a fresh decoder.
    """

    name: str
    clock_hz: int
    sample_rate_hz: int
    ticks_of: Callable[[bytes], int]
    open: Callable[[], PayloadDecoder]


class TableDecoder:
    """G.711: each byte is a sample by itself.

    Args:
        table: Decodes codes.
    """

    def __init__(self, table: Callable[[bytes], Int16Array]) -> None:
        self._table = table

    def decode(self, payload: bytes) -> Int16Array:
        """Return the samples of a payload."""
        return self._table(payload)


class LibraryDecoder:
    """A decoder of FFmpeg, mono.

    Args:
        name: FFmpeg's name of it.
        sample_rate_hz: Rate of what it gives.
    """

    def __init__(self, name: str, sample_rate_hz: int) -> None:
        decoder = cast("av.AudioCodecContext", av.CodecContext.create(name, "r"))
        decoder.sample_rate = sample_rate_hz
        decoder.layout = "mono"
        self._decoder = decoder

    def decode(self, payload: bytes) -> Int16Array:
        """Return the samples of a payload.

        Raises:
            MessageError: ``bad_payload``: it is broken.
        """
        try:
            frames = self._decoder.decode(av.Packet(payload))
        except (av.FFmpegError, ValueError) as error:
            raise bad_payload(self._decoder.name, payload) from error
        parts = [_as_int16(frame.to_ndarray().reshape(-1)) for frame in frames]
        return np.concatenate([np.zeros(0, np.int16), *parts])


def bad_payload(name: str, payload: bytes) -> MessageError:
    """Return the error for a payload that a codec cannot decode."""
    return MessageError(
        "bad_payload",
        f"A payload of {len(payload)} bytes is no {name} audio.",
        "Send audio as the session description says.",
    )


def _as_int16(samples: NDArray[np.generic]) -> Int16Array:
    if samples.dtype == np.int16:
        return samples.astype(np.int16)
    scaled = np.rint(samples.astype(np.float32) * _INT16_PEAK)
    return np.clip(scaled, -_INT16_PEAK, _INT16_PEAK - 1).astype(np.int16)


def opus_ticks(payload: bytes) -> int:
    """Return the length of an Opus packet in ticks of 48 kHz; 0 where it is broken.

    The first byte says mode and frame length, and how many frames there are (RFC 6716, section 3).
    """
    if not payload:
        return 0
    config, count_code = payload[0] >> 3, payload[0] & 3
    if config < 12:  # noqa: PLR2004  SILK: 10, 20, 40, 60 ms
        frame_ticks = (480, 960, 1_920, 2_880)[config % 4]
    elif config < 16:  # noqa: PLR2004  hybrid: 10, 20 ms
        frame_ticks = (480, 960)[config % 2]
    else:  # CELT: 2.5, 5, 10, 20 ms
        frame_ticks = (120, 240, 480, 960)[config % 4]
    if count_code < 3:  # noqa: PLR2004  one frame, or two of equal or of different size
        n_frames = (1, 2, 2)[count_code]
    else:
        n_frames = payload[1] & 0x3F if len(payload) > 1 else 0
    n_ticks = n_frames * frame_ticks
    return n_ticks if n_ticks <= _MAX_OPUS_TICKS else 0


PCMU = Codec("PCMU", 8_000, 8_000, len, lambda: TableDecoder(decode_mulaw))
PCMA = Codec("PCMA", 8_000, 8_000, len, lambda: TableDecoder(decode_alaw))
# One byte is two samples of 16 kHz, and so one tick.
G722 = Codec("G722", 8_000, 16_000, len, lambda: LibraryDecoder("g722", 16_000))
OPUS = Codec("opus", _OPUS_HZ, _OPUS_HZ, opus_ticks, lambda: LibraryDecoder("libopus", _OPUS_HZ))
CODECS = (PCMU, PCMA, G722, OPUS)
STATIC_TYPES: Mapping[int, Codec] = {0: PCMU, 8: PCMA, 9: G722}  # RFC 3551, table 4


class PayloadTypes:
    """Which codec each payload type of a call stands for.

    What was agreed on once stays known: packets sent before a change may come after it.
    """

    def __init__(self) -> None:
        self._codecs: dict[int, Codec] = dict(STATIC_TYPES)

    def codec(self, payload_type: int) -> Codec | None:
        """Return the codec of a payload type, or None where it is no audio we know."""
        return self._codecs.get(payload_type)

    def learn(self, payload_type: int, name: str, clock_hz: int) -> bool:
        """Take what an offer says of a payload type; tell whether its audio can be decoded.

        Args:
            payload_type: From 0 to 127.
            name: Encoding name; case does not count. Empty stands for a static type.
            clock_hz: Its clock.
        """
        if not name:
            return payload_type in STATIC_TYPES
        for codec in CODECS:
            is_named = codec.name.lower() == name.lower() and codec.clock_hz == clock_hz
            if is_named and 0 <= payload_type <= _MAX_DYNAMIC_TYPE:
                self._codecs[payload_type] = codec
                return True
        return False
