"""Where the packets of a source lie on the stream's clock, and how much is missing before each."""

from __future__ import annotations

MAX_GAP_MS = 600_000  # a longer jump is a source that set its clock anew, not a pause


class MediaTimeline:
    """Turns a source's media times into gaps between the pieces of audio it really sent.

    Audio whose time is less than one packet off counts as joining, so that a source with unsteady
    times is not cut up; the error does not add up, because the next whole packet of it becomes a
    gap. A jump back, or one of more than `MAX_GAP_MS`, sets the clock anew without a gap.

    Args:
        clock_hz: Ticks of the source's media clock in a second.
    """

    def __init__(self, clock_hz: int) -> None:
        self._clock_hz = clock_hz
        self._position: int | None = None
        self._owed = 0  # thousandths of a tick: parts of a millisecond not yet given out

    def begin(self, start: int) -> None:
        """Set the clock, before the first piece of audio: what is missing from there is a gap."""
        if self._position is None:
            self._position = start

    def place(self, start: int | None, duration: int, n_lost: int = 0) -> int:
        """Note a piece of audio; return the milliseconds missing in front of it.

        Args:
            start: Media time of its first sample, in ticks; None where the source tells none.
            duration: Its length in ticks.
            n_lost: Packets known to be lost in front of it; counts only where ``start`` is None.
        """
        if self._position is None:
            self._position = (start or 0) + duration
            return 0
        if start is None:
            start = self._position + n_lost * duration
        ahead = start - self._position
        is_anew = -ahead > self._clock_hz or ahead * 1000 > MAX_GAP_MS * self._clock_hz
        if is_anew or ahead >= max(duration, 1):
            self._position = start + duration
        else:
            self._position += duration
            return 0
        return 0 if is_anew else self._in_ms(ahead)

    def _in_ms(self, ticks: int) -> int:
        self._owed += ticks * 1000
        whole_ms, self._owed = divmod(self._owed, self._clock_hz)
        return whole_ms
