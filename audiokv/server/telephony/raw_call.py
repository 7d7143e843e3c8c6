"""What sources have in common that send nothing but samples, in real time and without times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Audio, Gap, Stop
from audiokv.server.telephony.quiet import QuietDialect
from audiokv.server.telephony.wishes import Wishes
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Opening
    from audiokv.server.telephony.call_audio import CallAudio


class RawCallDialect(QuietDialect):
    """A call whose audio says nothing about its time: what is not sent is silence."""

    def __init__(self) -> None:
        self._wishes = Wishes()
        self._audio: CallAudio | None = None
        self._is_stopped = False

    def open(self, opening: Opening) -> list[Command]:
        """Read ``language``, ``prompt`` and who calls from the address."""
        self._wishes = Wishes.of_opening(opening, self.source)
        return []

    def miss(self, more_ms: int) -> list[Command]:
        """Let the stream's clock go on: a call on hold sends nothing, and its time runs."""
        return [Gap(more_ms)] if self._audio is not None and not self._is_stopped else []

    def _take(self, audio: bytes, first: str) -> list[Command]:
        """Return the command for audio; what comes after the end is left out.

        Raises:
            MessageError: The message that tells its format, named ``first``, did not come.
        """
        if self._audio is None:
            raise MessageError(
                "start_expected",
                f"{len(audio)} bytes of audio came before {first}.",
                "Use the address for the protocol that docs/telephony.md names.",
            )
        return [] if self._is_stopped else [Audio(self._audio.push(audio))]

    def _stop(self) -> list[Command]:
        """Return the command that ends the stream, once."""
        if self._is_stopped:
            return []
        self._is_stopped = True
        return [Stop()]
