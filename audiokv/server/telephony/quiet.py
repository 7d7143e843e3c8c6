"""What the dialects of most sources have in common: nothing is said to one that cannot hear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Farewell, PlainDialect

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Event
    from audiokv.server.refusals import RefusalError

CALL_IDLE_TIMEOUT_S = 600.0  # a call on hold may send nothing for minutes


class QuietDialect(PlainDialect):
    """The half of a dialect that speaks, for sources that only send.

    Attributes:
        source: Name of the protocol, kept with the call.
    """

    source: str = ""
    idle_timeout_s: float | None = CALL_IDLE_TIMEOUT_S
    can_wait: bool = False

    def say(self, event: Event) -> list[str | bytes]:
        """Say nothing: viewers of the stream get its captions."""
        del event
        return []

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Close; the reason is all that can be said."""
        return Farewell([], refusal.close_code, refusal.code)
