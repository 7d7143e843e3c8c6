"""Twilio Media Streams, and what speaks the same: SignalWire's cXML, Fonoster, 2600Hz' Pivot.

Source: Twilio's reference of the WebSocket messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.telephony.media_stream import MediaStreamDialect, StreamHabits

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.server.protocols.dialect import Command, Opening


class TwilioDialect(MediaStreamDialect):
    """One stream of Twilio.

    Args:
        check: Raises `RefusalError` for an opening that may not come in.
    """

    source = "twilio"

    def __init__(self, check: Callable[[Opening], None]) -> None:
        super().__init__(StreamHabits())
        self._check = check

    def open(self, opening: Opening) -> list[Command]:
        """Check who connects, then read the address.

        Raises:
            RefusalError: The client may not come in.
        """
        self._check(opening)
        return super().open(opening)
