"""A telephone at a running server: what it says, and until when it was heard."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.server.doubles import speech, until
from tests.server.telephony.sip_caller import SipCaller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from audiokv.server.app import CaptionServer


def samples_of(seed: int, n_packets: int) -> list[np.ndarray[Any, np.dtype[np.int16]]]:
    noise = np.frombuffer(speech(seed, seconds=n_packets / 50, pause_every_s=60), "<i2")
    return list((noise // 2)[: 160 * n_packets].astype(np.int16).reshape(n_packets, 160))


@asynccontextmanager
async def telephone(server: CaptionServer, call_id: str = "call-1") -> AsyncIterator[SipCaller]:
    caller = SipCaller(server.other_ports["sip_port"], call_id)
    await caller.open()
    try:
        yield caller
    finally:
        caller.close()


async def speak(server: CaptionServer, caller: SipCaller, packets: list[bytes]) -> None:
    """Send packets no faster than they are taken: UDP makes no one wait."""
    entry = next(iter(server.registry._by_name.values()))
    for n, packet in enumerate(packets):
        caller.send_audio(packet)
        if n % 20 == 19:
            await until(lambda due=20 * (n - 19): entry.stream.received_ms >= due)  # type: ignore[misc]


async def taken(server: CaptionServer, n_ms: int) -> None:
    """Wait until so much of the one call was taken; the newest 2.5 ms are held back."""
    entry = next(iter(server.registry._by_name.values()))
    await until(lambda: entry.stream.received_ms >= n_ms)
