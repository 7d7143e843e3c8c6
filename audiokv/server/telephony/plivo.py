"""Plivo's audio streams: ``start`` without ``connected``, mu-law or linear audio.

Source: Plivo's guide to audio streaming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.telephony.media_stream import MediaStreamDialect, StreamHabits

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.server.protocols.dialect import Command, Opening


class PlivoDialect(MediaStreamDialect):
    """One stream of Plivo.

    Args:
        check: Raises `RefusalError` for an opening that may not come in.
    """

    source = "plivo"

    def __init__(self, check: Callable[[Opening], None]) -> None:
        super().__init__(StreamHabits(encoding="audio/x-l16"))
        self._check = check

    def open(self, opening: Opening) -> list[Command]:
        """Check who connects, then read the address.

        Raises:
            RefusalError: The client may not come in.
        """
        self._check(opening)
        return super().open(opening)
