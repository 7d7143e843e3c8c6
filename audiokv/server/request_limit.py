"""How many requests besides audio one connection may make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.refusals import CloseCode, RefusalError

if TYPE_CHECKING:
    from audiokv.server.clock import Clock

BURST = 100
PER_S = 10.0


class RequestLimit:
    """A bucket of requests that fills up again with time.

    Each ``finalize`` or ``update`` costs the worker time that all streams share, so one connection
    may not make as many as it likes. Both are far more than anyone needs: a caption editor sends
    one a key, a push-to-talk button one a sentence.

    Args:
        clock: The server's clock.
        burst: Requests that may come at once.
        per_s: Requests a second that may go on coming.
    """

    def __init__(self, clock: Clock, *, burst: int = BURST, per_s: float = PER_S) -> None:
        self._clock = clock
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._counted_s = clock.now_s()

    def take(self) -> None:
        """Count one request.

        Raises:
            RefusalError: ``too_many_requests``: more than the connection may make.
        """
        now_s = self._clock.now_s()
        self._left = min(self._burst, self._left + (now_s - self._counted_s) * self._per_s)
        self._counted_s = now_s
        if self._left < 1:
            raise RefusalError(
                CloseCode.NOT_ALLOWED,
                "too_many_requests",
                f"More than {self._per_s:g} update and finalize messages a second came.",
                "Send update only when a wish changes, and finalize once where a line ends.",
            )
        self._left -= 1
