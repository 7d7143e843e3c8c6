"""How a connection ends: close codes, and the errors that carry one."""

from __future__ import annotations

from enum import IntEnum

from audiokv.streaming.errors import AudioFormatError, AudioKVError, MessageError
from audiokv.streaming.messages import ErrorReport


class CloseCode(IntEnum):
    """Close codes of the native protocol."""

    DONE = 1000
    GOING_AWAY = 1001
    BAD_AUDIO = 1003
    NOT_ALLOWED = 1008
    TOO_LARGE = 1009
    INTERNAL = 1011
    FULL = 1013
    BAD_MESSAGE = 4400
    NOT_AUTHORIZED = 4401
    IDLE = 4408


# The client did something wrong and will do it again: it is not expected to resume its stream.
FAULT_CODES = frozenset(
    {CloseCode.BAD_AUDIO, CloseCode.NOT_ALLOWED, CloseCode.TOO_LARGE, CloseCode.BAD_MESSAGE}
)


class RefusalError(AudioKVError):
    """The server ends a connection.

    Args:
        close_code: How the connection is closed.
        code: Stable identifier for the ``error`` message.
        message: What is wrong, naming the input.
        remedy: What the client can do about it.
        retry_after_s: Seconds after which trying again may succeed, or None.
        close_reason: Reason of the close; by default the code.
    """

    def __init__(  # noqa: PLR0913  what every refusal says, and two that few need
        self,
        close_code: CloseCode,
        code: str,
        message: str,
        remedy: str,
        *,
        retry_after_s: float | None = None,
        close_reason: str = "",
    ) -> None:
        super().__init__(code, message, remedy)
        self.close_code = close_code
        self.retry_after_s = retry_after_s
        self.close_reason = close_reason or code


def internal_refusal() -> RefusalError:
    """Return what a client is told when the server itself failed; gives no detail away."""
    return RefusalError(
        CloseCode.INTERNAL,
        "internal",
        "The stream ended by an error inside the server.",
        "Start a new stream; if it happens again, report the stream's name to the operator.",
    )


def as_refusal(error: AudioKVError) -> RefusalError:
    """Return the refusal that tells a client about an error."""
    if isinstance(error, RefusalError):
        return error
    if isinstance(error, MessageError):
        close_code = CloseCode.BAD_MESSAGE
    elif isinstance(error, AudioFormatError):
        close_code = CloseCode.BAD_AUDIO
    else:
        close_code = CloseCode.INTERNAL
    return RefusalError(close_code, error.code, error.message, error.remedy)


def as_report(refusal: RefusalError) -> ErrorReport:
    """Return the ``error`` message of a refusal."""
    return ErrorReport(
        refusal.code, refusal.message, refusal.remedy, retry_after_s=refusal.retry_after_s
    )
