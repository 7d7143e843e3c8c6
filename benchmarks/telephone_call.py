"""A call in virtual time: packets through the server's own receiver into a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.server.protocols.dialect import Audio, Finalize, Gap, Opening
from audiokv.server.telephony.codecs import OPUS, PayloadTypes
from audiokv.server.telephony.rtp import RtpDialect
from audiokv.server.telephony.rtp_packet import Datagram
from audiokv.server.telephony.wishes import Wishes
from audiokv.streaming.audio_format import SAMPLE_RATE_HZ
from benchmarks.telephone_line import OPUS_TYPE
from benchmarks.virtual_stream import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from audiokv.server.protocols.dialect import Command
    from benchmarks.recordings import FloatArray
    from benchmarks.telephone_line import Sent

MISSING_AFTER_MS = 2_000  # as the server has it
_BYTES_PER_MS = 2 * SAMPLE_RATE_HZ // 1000


def received(arrived: Iterable[Sent]) -> Iterator[Piece]:
    """Return what the server's receiver hands to the session, and when.

    Args:
        arrived: Packets in the order in which they come.
    """
    payload_types = PayloadTypes()
    payload_types.learn(OPUS_TYPE, OPUS.name, OPUS.clock_hz)
    dialect = RtpDialect(Wishes(), payload_types)
    dialect.open(Opening())
    at_ms = 0.0
    for one in arrived:
        if one.at_ms - at_ms >= MISSING_AFTER_MS:
            yield from _pieces(at_ms + MISSING_AFTER_MS, dialect.miss(MISSING_AFTER_MS))
        at_ms = one.at_ms
        yield from _pieces(at_ms, dialect.hear(Datagram(one.data, at_ms)))
    yield from _pieces(at_ms, dialect.hear(b""))


def _pieces(at_ms: float, commands: Iterable[Command]) -> Iterator[Piece]:
    for command in commands:
        match command:
            case Audio(data):
                yield Piece(at_ms, data)
            case Gap(duration_ms):
                yield Piece(at_ms, bytes(duration_ms * _BYTES_PER_MS))
            case Finalize():
                yield Piece(at_ms, b"", finalizes=True)
            case _:
                continue


def heard(arrived: Iterable[Sent]) -> FloatArray:
    """Return the samples that reach the session, 16 kHz mono: gaps are zeros."""
    audio = b"".join(piece.audio for piece in received(arrived))
    return np.frombuffer(audio, "<i2").astype(np.float32) / np.float32(32_768)
