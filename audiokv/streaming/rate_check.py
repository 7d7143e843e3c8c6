"""Tells when a live source sends at another sample rate than it declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.captions import Notice

if TYPE_CHECKING:
    from audiokv.streaming.audio_format import AudioFormat

STANDARD_RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)

_CELL_S = 0.1
_WINDOW_CELLS = 40
_MAX_PAUSE_S = 1.0  # after this the source is taken to have paused, and the window starts again
_MAX_OFF_PACE_S = 0.3  # how far, in audio time, a steady source may lead or trail its own pace
_MAX_STANDARD_ERROR = 0.01  # clocks are good to 0.1 %; the rest is what jitter leaves in the fit
_MIN_MISMATCH = 0.04  # 44.1 kHz taken for 48 kHz is 8 %
_N_WINDOWS = 2  # in a row that must agree


class RateCheck:
    """Compares the pace of a live source with the rate it declared, and reports a mismatch once.

    Eight seconds decide: in two windows of 4 s in a row the bytes must arrive on a straight line,
    and the slope of both must be within 1 % of the same standard rate, which is not the declared
    one. A file sent as fast as it goes, a burst after a reconnect and pauses make no such lines.

    Arrival must be taken where the bytes leave the network, before any queue that can be full.

    Args:
        fmt: What the source declared.
    """

    def __init__(self, fmt: AudioFormat) -> None:
        self._fmt = fmt
        self._cells = np.zeros(_WINDOW_CELLS)  # bytes per 100 ms
        self._origin_s: float | None = None
        self._last_s = 0.0
        self._candidates_hz: list[int] = []
        self._is_reported = False

    def push(self, arrival_s: float, n_bytes: int) -> Notice | None:
        """Note the arrival of bytes.

        Args:
            arrival_s: When they came, in seconds of any clock that never goes back.
            n_bytes: How many.

        Returns:
            A notice with code ``rate_mismatch`` at the moment it becomes certain, once a stream;
            otherwise None.
        """
        if self._is_reported:
            return None
        if self._origin_s is None or arrival_s - self._last_s > _MAX_PAUSE_S:
            self._start_window(arrival_s)
            self._candidates_hz.clear()
        notice = None
        cell = self._cell_of(arrival_s)
        if cell >= _WINDOW_CELLS:
            notice = self._judge()
            self._start_window(arrival_s)
            cell = 0
        self._cells[cell] += n_bytes
        self._last_s = arrival_s
        return notice

    def _start_window(self, at_s: float) -> None:
        self._cells[:] = 0
        self._origin_s = at_s

    def _cell_of(self, arrival_s: float) -> int:
        return int((arrival_s - (self._origin_s or 0.0)) / _CELL_S)

    def _judge(self) -> Notice | None:
        rate_hz = _steady_rate_hz(self._cells / self._fmt.frame_bytes)
        if rate_hz is None or abs(rate_hz / self._fmt.sample_rate_hz - 1) < _MIN_MISMATCH:
            self._candidates_hz.clear()
            return None
        self._candidates_hz = [c for c in self._candidates_hz if c == rate_hz] + [rate_hz]
        if len(self._candidates_hz) < _N_WINDOWS:
            return None
        self._is_reported = True
        return _mismatch(rate_hz, self._fmt)


def _steady_rate_hz(samples_per_cell: np.ndarray) -> int | None:
    """Return the standard rate at which samples arrived steadily, or None."""
    arrived = np.cumsum(samples_per_cell)
    ends_s = (np.arange(_WINDOW_CELLS) + 1) * _CELL_S
    slope_hz, start = np.polyfit(ends_s, arrived, 1)
    off_pace = np.abs(arrived - (slope_hz * ends_s + start)).max()
    if off_pace > _MAX_OFF_PACE_S * slope_hz:
        return None
    nearest_hz = min(STANDARD_RATES_HZ, key=lambda rate_hz: abs(rate_hz - slope_hz))
    return nearest_hz if abs(slope_hz / nearest_hz - 1) < _MAX_STANDARD_ERROR else None


def _mismatch(rate_hz: int, fmt: AudioFormat) -> Notice:
    remedy = f"Send sample_rate {rate_hz} in start"
    if max(rate_hz, fmt.sample_rate_hz) % min(rate_hz, fmt.sample_rate_hz) == 0:
        remedy += ", or check that encoding and channels are as declared"
    return Notice(
        "rate_mismatch",
        f"{rate_hz:,} samples a second arrive where {fmt.sample_rate_hz:,} were declared.",
        f"{remedy}.",
    )
