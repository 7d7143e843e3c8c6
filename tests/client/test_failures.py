from __future__ import annotations

import socket
import ssl

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.frames import Close
from websockets.http11 import Response

from audiokv.client.failures import LinkError, LostError, failure_of_close, failure_of_connect
from audiokv.streaming.messages import ErrorReport

URL = "ws://example.test/v1/stream"


def closed_with(code: int | None) -> ConnectionClosed:
    return ConnectionClosedError(None if code is None else Close(code, ""), None)


@pytest.mark.parametrize("code", [1003, 1008, 1009, 4400, 4401])
def test_what_the_user_must_mend_is_final_even_without_a_message(code: int) -> None:
    failure = failure_of_close(closed_with(code), None)
    assert isinstance(failure, LinkError)
    assert failure.message
    assert failure.remedy


def test_the_servers_own_words_come_first() -> None:
    failure = failure_of_close(closed_with(1003), ErrorReport("x", "Said.", "Do."))
    assert isinstance(failure, LinkError)
    assert (failure.code, failure.message, failure.remedy) == ("x", "Said.", "Do.")


@pytest.mark.parametrize("code", [None, 1000, 1001, 1006, 1012, 4408])
def test_what_passes_may_be_tried_again(code: int | None) -> None:
    failure = failure_of_close(closed_with(code), None)
    assert isinstance(failure, LostError)
    assert not failure.is_forgotten
    assert not failure.can_retry_now
    assert failure.retry_after_s is None


def test_a_full_server_says_when() -> None:
    report = ErrorReport("full", "Full.", "Wait.", retry_after_s=12.5)
    failure = failure_of_close(closed_with(1013), report)
    assert isinstance(failure, LostError)
    assert failure.retry_after_s == 12.5
    silent = failure_of_close(closed_with(1013), None)
    assert isinstance(silent, LostError)
    assert silent.retry_after_s is None


def test_an_unknown_stream_is_begun_anew_at_once() -> None:
    failure = failure_of_close(closed_with(4400), ErrorReport("unknown_resume", "No.", ""))
    assert isinstance(failure, LostError)
    assert failure.is_forgotten
    assert failure.can_retry_now


def test_a_failed_stream_is_begun_anew_but_not_at_once() -> None:
    failure = failure_of_close(closed_with(1011), ErrorReport("internal", "Oh.", ""))
    assert isinstance(failure, LostError)
    assert failure.is_forgotten
    assert not failure.can_retry_now


def status(code: int, **headers: str) -> InvalidStatus:
    return InvalidStatus(Response(code, "", Headers(headers)))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidURI("x", "no"), "bad_url"),
        (ValueError("Port out of range"), "bad_url"),
        (status(401), "not_authorized"),
        (status(403), "not_authorized"),
        (status(404), "wrong_path"),
        (status(400), "refused"),
        (ssl.SSLError(1, "wrong version number"), "no_tls"),
    ],
)
def test_what_the_user_must_mend_to_connect(error: Exception, code: str) -> None:
    failure = failure_of_connect(URL, error)
    assert isinstance(failure, LinkError)
    assert failure.code == code
    assert failure.remedy


def test_an_untrusted_certificate_says_why() -> None:
    error = ssl.SSLCertVerificationError(1, "x")
    error.verify_message = "self-signed certificate"
    failure = failure_of_connect(URL, error)
    assert isinstance(failure, LinkError)
    assert "self-signed certificate" in failure.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "does not answer"),
        (ConnectionRefusedError(111, "refused"), "refuses the connection"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("odd"), "odd"),
        (InvalidMessage("no"), "does not answer as a WebSocket server"),
        (status(503), "status 503"),
        (status(429), "status 429"),
    ],
)
def test_what_may_pass(error: Exception, reason: str) -> None:
    failure = failure_of_connect(URL, error)
    assert isinstance(failure, LostError)
    assert reason in failure.reason


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("Wed, 21 Oct", None)])
def test_a_busy_proxy_may_say_when(header: str, seconds: float | None) -> None:
    failure = failure_of_connect(
        URL, InvalidStatus(Response(503, "", Headers({"Retry-After": header})))
    )
    assert isinstance(failure, LostError)
    assert failure.retry_after_s == seconds
