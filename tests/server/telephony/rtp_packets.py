"""Packets of a sender whose counters are about to wrap."""

from __future__ import annotations

import numpy as np

from audiokv.streaming.resampler import StreamResampler

SOURCE = 0xDEADBEEF


def rtp(
    n: int, payload: bytes | None = None, *, kind: int = 0, source: int = SOURCE, late: int = 0
) -> bytes:
    """Return the n-th packet of 20 ms; number and time wrap after a few.

    Args:
        n: Number from 0.
        payload: By default 160 codes that tell n.
        kind: Payload type.
        source: Identifier of the sender.
        late: Ticks by which its time is later.
    """
    sequence = (65_530 + n) % 2**16
    timestamp = (2**32 - 800 + 160 * n + late) % 2**32
    header = bytes([0x80, kind]) + sequence.to_bytes(2, "big") + timestamp.to_bytes(4, "big")
    audio = bytes([n % 256]) * 160 if payload is None else payload
    return header + source.to_bytes(4, "big") + audio


def wide(narrow: np.ndarray) -> bytes:
    """Return what becomes of samples of 8 kHz that nothing interrupts: pcm_s16le, 16 kHz."""
    resampler = StreamResampler(8_000)
    samples = [resampler.push(narrow.astype(np.float32)), resampler.flush()]
    return np.clip(np.rint(np.concatenate(samples)), -32_768, 32_767).astype("<i2").tobytes()
