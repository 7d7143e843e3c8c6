"""What went wrong on the way to the server: what passes, and what the user must mend."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from websockets.exceptions import InvalidStatus, InvalidURI

from audiokv.streaming.errors import AudioKVError

if TYPE_CHECKING:
    from websockets.exceptions import ConnectionClosed

    from audiokv.streaming.messages import ErrorReport

UNKNOWN_RESUME = "unknown_resume"

_INTERNAL_ERROR = 1011
_TRY_AGAIN_LATER = 1013
_NO_TOKEN = 4401
_UNAUTHORIZED = (401, 403)
_NOT_FOUND = 404
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500

_MENDABLE = {
    1003: ("bad_audio", "The server cannot decode the audio.", "Check encoding and sample rate."),
    1008: ("not_allowed", "The server does not allow this.", "Ask its operator."),
    1009: ("too_large", "A message was too large for the server.", "Report this as a defect."),
    4400: ("bad_message", "The server did not understand a message.", "Use matching versions."),
    _NO_TOKEN: (
        "not_authorized",
        "The server wants a token, or another one.",
        "Give it with --token or in AUDIOKV_TOKEN.",
    ),
}


class LinkError(AudioKVError):
    """The link ended for a reason that trying again does not mend."""


class LostError(Exception):
    """A connection ended or never came about; another attempt may succeed.

    Args:
        reason: What happened, as the end of a sentence that begins with the server.
        retry_after_s: When the server wants the next attempt, or None.
        is_forgotten: Whether the stream is over for the server, so that only a new one can go on.
        report: What the server said about it.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry_after_s: float | None = None,
        is_forgotten: bool = False,
        report: ErrorReport | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.is_forgotten = is_forgotten
        self.report = report

    @property
    def can_retry_now(self) -> bool:
        """Whether the server is well and only wants to be asked differently."""
        return self.report is not None and self.report.code == UNKNOWN_RESUME


def failure_of_close(closed: ConnectionClosed, report: ErrorReport | None) -> LostError | LinkError:
    """Return what a closed connection means, given the server's last ``error`` message."""
    code = closed.rcvd.code if closed.rcvd else None
    if report is not None and report.code == UNKNOWN_RESUME:
        return LostError("no longer knows the stream", is_forgotten=True, report=report)
    if code in _MENDABLE:
        fallback = LinkError(*_MENDABLE[code])
        return LinkError(report.code, report.message, report.remedy) if report else fallback
    if code == _TRY_AGAIN_LATER:
        retry_after_s = report.retry_after_s if report else None
        return LostError("is full", retry_after_s=retry_after_s, report=report)
    reason = "vanished" if code is None else f"closed the connection (code {code})"
    return LostError(reason, is_forgotten=code == _INTERNAL_ERROR, report=report)


def failure_of_connect(url: str, error: Exception) -> LostError | LinkError:
    """Return what a failed attempt to connect means."""
    if isinstance(error, InvalidStatus):
        return _failure_of_status(url, error)
    if isinstance(error, InvalidURI | ValueError) and not isinstance(error, OSError):
        return LinkError(
            "bad_url",
            f"{url!r} is not the address of a server.",
            "Give one like ws://127.0.0.1:8765/v1/stream.",
        )
    if isinstance(error, ssl.SSLError):
        return _failure_of_tls(url, error)
    return LostError(_reason(error))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "refuses the connection"
    if isinstance(error, OSError):
        return f"cannot be reached ({error.strerror or error})"
    return "does not answer as a WebSocket server"


def _failure_of_tls(url: str, error: ssl.SSLError) -> LinkError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return LinkError(
            "bad_certificate",
            f"The certificate of {url} is not trusted: {error.verify_message}.",
            "Set SSL_CERT_FILE to the certificate authority's file if it is yours.",
        )
    return LinkError(
        "no_tls", f"{url} does not answer with TLS.", "Use ws:// for a server without TLS."
    )


def _failure_of_status(url: str, error: InvalidStatus) -> LostError | LinkError:
    status = error.response.status_code
    if status in _UNAUTHORIZED:
        return LinkError(*_MENDABLE[_NO_TOKEN])
    if status == _NOT_FOUND:
        return LinkError(
            "wrong_path", f"There is no stream at {url}.", "The path is usually /v1/stream."
        )
    if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERRORS:
        wait = error.response.headers.get("Retry-After", "")
        return LostError(
            f"answers with status {status}", retry_after_s=float(wait) if wait.isdigit() else None
        )
    return LinkError(
        "refused", f"{url} answers with status {status}.", "Check the address and the token."
    )
