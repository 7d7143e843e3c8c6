"""What a telephone and its network do to speech: encoded, cut into packets, lost, late, doubled.

Packets are real ones, as a sender of RTP makes them, and real encoders make their payloads. What
happens on the way is drawn by chance from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import av
import numpy as np
import samplerate

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ
from audiokv.streaming.g711 import encode_alaw, encode_mulaw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.recordings import FloatArray

PACKET_MS = 20
OPUS_TYPE = 111  # dynamic; what the tests and benchmarks agree on
_INT16_PEAK = 32_767


def _resampled(samples: FloatArray, rate_hz: int) -> NDArray[np.int16]:
    """Return 16 kHz samples at another rate, as well as can be, filled up to whole packets."""
    ratio = rate_hz / SAMPLE_RATE_HZ
    moved = samples if ratio == 1 else samplerate.resample(samples, ratio, "sinc_best")
    n_packet = rate_hz * PACKET_MS // 1000
    wanted = -(-round(len(samples) * ratio) // n_packet) * n_packet
    fitted = np.zeros(wanted, np.float32)
    n_kept = min(wanted, len(moved))
    fitted[:n_kept] = moved[:n_kept]
    scaled = np.rint(fitted * _INT16_PEAK)
    return np.clip(scaled, -_INT16_PEAK, _INT16_PEAK).astype(np.int16)


def _g711(encode: Callable[[NDArray[np.int16]], bytes], samples: FloatArray) -> list[bytes]:
    narrow = _resampled(samples, 8_000)
    n_packet = 8 * PACKET_MS
    return [encode(narrow[at : at + n_packet]) for at in range(0, len(narrow), n_packet)]


def _by_library(
    name: str, rate_hz: int, options: Mapping[str, str], samples: FloatArray
) -> list[bytes]:
    """Encode with a library of FFmpeg, a packet of 20 ms at a time."""
    encoder = cast("av.AudioCodecContext", av.CodecContext.create(name, "w"))
    encoder.sample_rate = rate_hz
    encoder.layout = "mono"
    encoder.format = "s16"
    encoder.options = dict(options)
    moved = _resampled(samples, rate_hz)
    n_packet = rate_hz * PACKET_MS // 1000
    payloads: list[bytes] = []
    for at in range(0, len(moved), n_packet):
        frame = av.AudioFrame.from_ndarray(
            moved[None, at : at + n_packet], format="s16", layout="mono"
        )
        frame.sample_rate = rate_hz
        frame.pts = at
        payloads += [bytes(packet) for packet in encoder.encode(frame)]
    return payloads


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a telephone encodes.

    Attributes:
        payload_type: In its packets.
        clock_hz: Of its timestamps.
        encode: From samples, 16 kHz mono, to payloads of 20 ms each.
    """

    payload_type: int
    clock_hz: int
    encode: Callable[[FloatArray], list[bytes]]


ENCODINGS: Mapping[str, Encoding] = {
    "pcmu": Encoding(0, 8_000, partial(_g711, encode_mulaw)),
    "pcma": Encoding(8, 8_000, partial(_g711, encode_alaw)),
    "g722": Encoding(9, 8_000, partial(_by_library, "g722", 16_000, {})),
    "opus": Encoding(
        OPUS_TYPE,
        48_000,
        partial(_by_library, "libopus", 48_000, {"b": "32000", "application": "audio"}),
    ),
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A packet on its way.

    Attributes:
        at_ms: When it left, or came, on the clock of the call.
        data: The packet.
    """

    at_ms: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Leg:
    """What a sender's counters begin with; a new leg knows nothing of the one before.

    Attributes:
        encoding: Name of its encoding.
        source: Identifier of the sender (SSRC).
        sequence: Number of its first packet.
        timestamp: Time of its first packet.
    """

    encoding: str = "pcmu"
    source: int = 0x1234_5678
    sequence: int = 65_500
    timestamp: int = 2**32 - 8_000

    def send(self, samples: FloatArray, from_ms: float = 0.0) -> list[Sent]:
        """Return the packets of speech, each leaving when its last sample was spoken.

        Args:
            samples: Shape (n,), 16 kHz mono.
            from_ms: When the first sample is spoken; a whole number of packets.
        """
        encoding = ENCODINGS[self.encoding]
        first = round(from_ms / PACKET_MS)
        n_ticks = encoding.clock_hz * PACKET_MS // 1000
        sent = []
        for n, payload in enumerate(encoding.encode(samples), first):
            header = bytes([0x80, encoding.payload_type])
            header += ((self.sequence + n) % 2**16).to_bytes(2, "big")
            header += ((self.timestamp + n * n_ticks) % 2**32).to_bytes(4, "big")
            sent.append(
                Sent(PACKET_MS * (n + 1.0), header + self.source.to_bytes(4, "big") + payload)
            )
        return sent


@dataclass(frozen=True, slots=True)
class Network:
    """What happens to packets; each draws its own fate.

    Attributes:
        loss: Share of packets that never come.
        jitter_ms: Most that the network adds to its least delay, evenly spread; packets overtake
            each other by it.
        doubling: Share of packets that come twice.
        delay_ms: The least delay.
    """

    loss: float = 0.0
    jitter_ms: float = 0.0
    doubling: float = 0.0
    delay_ms: float = 30.0

    def carry(self, sent: Iterable[Sent], chance: np.random.Generator) -> list[Sent]:
        """Return the packets that come, in the order in which they do."""
        arrived: list[Sent] = []
        for one in sent:
            if chance.random() < self.loss:
                continue
            n_copies = 2 if chance.random() < self.doubling else 1
            for _ in range(n_copies):
                late_ms = self.delay_ms + chance.uniform(0, self.jitter_ms)
                arrived.append(Sent(one.at_ms + late_ms, one.data))
        return sorted(arrived, key=lambda one: one.at_ms)


BAD_NETWORK = Network(loss=0.05, jitter_ms=60.0, doubling=0.02)


def without(sent: Sequence[Sent], from_ms: float, until_ms: float) -> list[Sent]:
    """Return the packets that leave outside a time: the line is dead in it."""
    return [one for one in sent if not from_ms <= one.at_ms < until_ms]
