"""A recording sent to a running server in real time, with the moment every caption arrived."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audiokv.client.file import REAL_TIME_BLOCK_MS, AudioFile
from audiokv.client.link import ReconnectingLink
from audiokv.client.settings import LinkSettings
from audiokv.streaming.captions import Caption, Notice
from audiokv.streaming.messages import AUTO_LANGUAGE, Progress
from benchmarks.measures import Arrival
from benchmarks.recordings import near_silence, to_pcm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from audiokv.client.timing import Clock
    from audiokv.streaming.audio_format import AudioFormat

TAIL_MS = 2000  # near-silence behind a recording, so that its last segment ends by its pause


class MonotonicClock:
    """The system's monotonic clock, read when asked and not once a turn of the event loop."""

    def now_s(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()

    async def sleep(self, delay_s: float) -> None:
        """Return after a delay."""
        await asyncio.sleep(delay_s)


@dataclass(frozen=True, slots=True)
class Speech:
    """Audio as a source sends it.

    Attributes:
        audio_format: Its format.
        blocks: Pieces of 10 ms, and a shorter one where a recording ends.
    """

    audio_format: AudioFormat
    blocks: tuple[bytes, ...]

    @property
    def duration_ms(self) -> float:
        """Length of the audio."""
        return sum(map(len, self.blocks)) * 1e3 / self.audio_format.bytes_per_second


def speech_from_file(path: Path, tail_ms: int = TAIL_MS) -> Speech:
    """Return a file in its own rate and channels, near-silence behind it."""
    with AudioFile(path) as file:
        audio_format = file.audio_format
        blocks = [block for block in file.blocks(REAL_TIME_BLOCK_MS) if block]
    n_samples = audio_format.sample_rate_hz * tail_ms // 1000
    tail = np.repeat(near_silence(n_samples), audio_format.channels)
    return Speech(audio_format, (*blocks, *split(to_pcm(tail), audio_format)))


def split(audio: bytes, audio_format: AudioFormat) -> Iterator[bytes]:
    """Yield pieces of 10 ms."""
    n_frames = audio_format.sample_rate_hz * REAL_TIME_BLOCK_MS // 1000
    size = n_frames * audio_format.frame_bytes
    for first in range(0, len(audio), size):
        yield audio[first : first + size]


@dataclass(slots=True)
class LiveRun:
    """What came back while a recording was sent.

    Attributes:
        arrivals: Captions, on the clock that is 0 when the first sample was due.
        notices: Codes of warnings and of connection news, each with its arrival in ms.
        sent_ms: When the last piece was due.
        lags_ms: The lags the server reported, each with its arrival.
        done_after_ms: From the end of the audio until the stream was over.
        max_late_ms: How much too late this program sent a piece at the worst; figures are only as
            good as this is small.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    notices: list[tuple[float, str]] = field(default_factory=list)
    sent_ms: float = 0.0
    lags_ms: list[tuple[float, int]] = field(default_factory=list)
    done_after_ms: float = 0.0
    max_late_ms: float = 0.0

    @property
    def max_lag_ms(self) -> int:
        """Return the largest lag the server reported."""
        return max((lag for _, lag in self.lags_ms), default=0)

    @property
    def outages_ms(self) -> list[float]:
        """Return how long each loss of the connection lasted, as the client saw it."""
        lasted: list[float] = []
        lost_ms: float | None = None
        for at_ms, code in self.notices:
            if code == "connection_lost" and lost_ms is None:
                lost_ms = at_ms
            elif code == "connection_back" and lost_ms is not None:
                lasted.append(at_ms - lost_ms)
                lost_ms = None
        return lasted

    @property
    def end_lag_ms(self) -> int:
        """Return the lag it reported last before all audio was sent."""
        return next((lag for at, lag in reversed(self.lags_ms) if at <= self.sent_ms), 0)


async def stream_in_real_time(
    url: str, speech: Speech, language: str | None = None, clock: Clock | None = None
) -> LiveRun:
    """Send audio as a microphone would and note when each caption arrives.

    Each piece is sent when its last sample is due, counted from one fixed moment, so that a late
    piece does not delay those after it.

    Args:
        url: The server's ``/v1/stream``.
        speech: The audio.
        language: ISO 639-1 code, or None to have it detected.
        clock: Time; by default the system's.

    Raises:
        AudioKVError: The server cannot be reached, or refuses.
    """
    clock = clock or MonotonicClock()
    settings = LinkSettings(
        url=url, audio_format=speech.audio_format, language=language or AUTO_LANGUAGE
    )
    run = LiveRun()
    async with ReconnectingLink(settings) as link, asyncio.TaskGroup() as group:
        began_s = clock.now_s()
        group.create_task(_receive(link, run, clock, began_s))
        await _send(link, speech, run, clock, began_s)
        await link.stop()
        run.done_after_ms = (clock.now_s() - began_s) * 1e3 - run.sent_ms
    return run


async def _send(
    link: ReconnectingLink, speech: Speech, run: LiveRun, clock: Clock, began_s: float
) -> None:
    n_bytes = 0
    for block in speech.blocks:
        n_bytes += len(block)
        due_s = began_s + n_bytes / speech.audio_format.bytes_per_second
        wait_s = due_s - clock.now_s()
        if wait_s > 0:
            await clock.sleep(wait_s)
        run.max_late_ms = max(run.max_late_ms, (clock.now_s() - due_s) * 1e3)
        await link.send(block)
    run.sent_ms = n_bytes * 1e3 / speech.audio_format.bytes_per_second


async def _receive(link: ReconnectingLink, run: LiveRun, clock: Clock, began_s: float) -> None:
    async for event in link:
        at_ms = (clock.now_s() - began_s) * 1e3
        match event:
            case Caption():
                run.arrivals.append(Arrival(at_ms, event))
            case Notice():
                run.notices.append((at_ms, event.code))
            case Progress():
                run.lags_ms.append((at_ms, event.lag_ms))
