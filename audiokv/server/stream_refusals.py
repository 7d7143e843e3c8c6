"""Why the registry of streams refuses what it is asked for."""

from __future__ import annotations

from audiokv.server.refusals import CloseCode, RefusalError

RETRY_AFTER_S = 10.0


def full(code: str, message: str) -> RefusalError:
    """Return the refusal of what the server has no room for now."""
    return RefusalError(
        CloseCode.FULL,
        code,
        message,
        f"Try again in {RETRY_AFTER_S:.0f} s.",
        retry_after_s=RETRY_AFTER_S,
    )


def gave_way() -> RefusalError:
    """Return why a stream whose source was away ended early."""
    return RefusalError(
        CloseCode.FULL, "gave_way", "The stream's source was away and others waited.", ""
    )


def unknown_resume() -> RefusalError:
    """Return the refusal of a resume token that names no stream."""
    return RefusalError(
        CloseCode.BAD_MESSAGE,
        "unknown_resume",
        "No stream can be resumed with this token; its time may be over.",
        "Start a new stream.",
    )


def unknown_stream(name: str) -> RefusalError:
    """Return the refusal of a name that is no stream's."""
    return RefusalError(
        CloseCode.BAD_MESSAGE,
        "unknown_stream",
        f"There is no stream {name[:40]!r}.",
        "Use the stream named in the source's ready message, while it lasts.",
    )
