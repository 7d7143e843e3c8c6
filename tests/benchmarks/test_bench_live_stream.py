from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.streaming.audio_format import AudioFormat
from benchmarks.live_stream import LiveRun, Speech, speech_from_file, split, stream_in_real_time
from benchmarks.measures import final_words
from tests.server.doubles import captions_in, speech, undisturbed
from tests.server.running import running_server, stream_url

if TYPE_CHECKING:
    from pathlib import Path


class SkippingClock:
    """Time that passes only when somebody waits, and at once."""

    def __init__(self) -> None:
        self.now = 100.0
        self.n_waits = 0

    def now_s(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.n_waits += 1
        self.now += delay_s
        await asyncio.sleep(0)


async def test_pieces_leave_by_deadlines_and_captions_are_stamped() -> None:
    fmt = AudioFormat()
    audio = speech(2, seconds=4.0)
    clock = SkippingClock()
    async with running_server() as server:
        run = await stream_in_real_time(
            stream_url(server), Speech(fmt, tuple(split(audio, fmt))), clock=clock
        )
    assert clock.now == pytest.approx(104.0)
    assert clock.n_waits == 400
    assert run.sent_ms == 4_000
    assert run.max_late_ms == pytest.approx(0.0, abs=1e-6)
    expected = captions_in(undisturbed(audio))
    assert final_words(run.arrivals) == [w for c in expected if c.is_final for w in c.words]
    stamps = [a.at_ms for a in run.arrivals]
    assert stamps == sorted(stamps)
    assert 0 <= stamps[0] <= stamps[-1] <= 4_000 + 1e-6
    assert run.notices == []


@pytest.mark.parametrize(("rate_hz", "channels"), [(16_000, 1), (44_100, 2), (48_000, 1)])
def test_a_file_keeps_its_format_and_gets_a_tail(
    tmp_path: Path, rate_hz: int, channels: int
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.full((rate_hz, channels), 0.5, np.float32), rate_hz)
    found = speech_from_file(path, tail_ms=500)
    assert found.audio_format == AudioFormat(sample_rate_hz=rate_hz, channels=channels)
    assert found.duration_ms == pytest.approx(1_500, abs=0.1)
    n_bytes = found.audio_format.bytes_per_second // 100
    assert all(len(block) <= n_bytes + 4 for block in found.blocks)
    last = np.frombuffer(found.blocks[-1], "<i2").reshape(-1, channels)
    assert np.abs(last).max() < 100
    assert (last == last[:, :1]).all()


def test_lags_and_outages_are_read_from_what_came() -> None:
    run = LiveRun(
        sent_ms=1_000.0,
        lags_ms=[(500.0, 90), (900.0, 40), (1_200.0, 10)],
        notices=[
            (100.0, "connection_lost"),
            (300.0, "connection_lost"),
            (450.0, "connection_back"),
            (600.0, "rate_mismatch"),
            (700.0, "connection_lost"),
        ],
    )
    assert (run.max_lag_ms, run.end_lag_ms) == (90, 40)
    assert run.outages_ms == [350.0]
    assert (LiveRun().max_lag_ms, LiveRun().end_lag_ms) == (0, 0)
