"""How late packets come, to tell where on the stream a sender's clock lies that was set anew."""

from __future__ import annotations

from collections import deque

WINDOW_MS = 10_000  # clocks drift by less than 2 ms in it


class TransitFloor:
    """The least delay of the packets of late: what the network adds to it is jitter.

    Delays are differences of two clocks that know nothing of each other, so only their changes mean
    anything.
    """

    def __init__(self) -> None:
        self._floors: deque[tuple[int, float]] = deque()  # by second of arrival

    @property
    def least_ms(self) -> float | None:
        """The least delay in the last ten seconds; None before the first packet."""
        return min((floor for _, floor in self._floors), default=None)

    def note(self, arrived_ms: float, media_ms: float) -> None:
        """Take in a packet.

        Args:
            arrived_ms: When it came, on the receiver's clock.
            media_ms: Where its audio lies on the stream.
        """
        delay_ms = arrived_ms - media_ms
        second = int(arrived_ms // 1000)
        if self._floors and self._floors[-1][0] >= second:
            latest, floor = self._floors.pop()
            second, delay_ms = latest, min(floor, delay_ms)
        self._floors.append((second, delay_ms))
        while (self._floors[-1][0] - self._floors[0][0]) * 1000 >= WINDOW_MS:
            self._floors.popleft()

    def shift(self, by_ms: float) -> None:
        """Take that the audio of all packets lies earlier on the stream by so much."""
        self._floors = deque((second, floor + by_ms) for second, floor in self._floors)
