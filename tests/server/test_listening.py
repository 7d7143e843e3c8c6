from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from audiokv.server.config import ServerConfig
from audiokv.server.listening import (
    MAX_QUERY_FIELDS,
    cannot_listen,
    credentials_of,
    opening_of,
    tls_context,
)
from audiokv.streaming.errors import ConfigError, MessageError
from tests.server.doubles import INFO


def test_an_opening_tells_address_headers_and_server() -> None:
    headers = Headers([("Host", "h"), ("X-A", "1"), ("x-a", "2")])
    request = Request("/v1/listen?tag=a&tag=b%20c&empty=&language=de", headers)
    opening = opening_of(request, INFO, ServerConfig(pause_ms=700))
    assert opening.path == "/v1/listen"
    assert opening.query == {"tag": ("a", "b c"), "empty": ("",), "language": ("de",)}
    assert opening.headers == {"host": "h", "x-a": "1"}
    assert (opening.model, opening.languages) == ("scripted", INFO.languages)
    assert opening.pause_ms == 700


def test_an_address_has_so_many_parameters_and_no_more() -> None:
    query = "&".join(f"p{i}=1" for i in range(MAX_QUERY_FIELDS + 1))
    with pytest.raises(MessageError, match="parameters"):
        opening_of(Request(f"/?{query}", Headers()), INFO, ServerConfig())


def test_credentials_are_taken_from_the_first_of_each_header() -> None:
    headers = Headers(
        [
            ("Authorization", "Token a"),
            ("Authorization", "Token b"),
            ("Sec-WebSocket-Protocol", "token, k"),
            ("Origin", "http://o"),
            ("Host", "h"),
        ]
    )
    credentials = credentials_of(Request("/", headers))
    assert credentials.authorization == "Token a"
    assert credentials.subprotocols == ("token", "k")
    assert (credentials.origin, credentials.host) == ("http://o", "h")
    assert credentials_of(Request("/", Headers())).authorization is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "port_in_use"),
        (OSError(errno.EACCES, "no"), "port_not_allowed"),
        (OSError(errno.EADDRNOTAVAIL, "not ours"), "bad_host"),
        (socket.gaierror(-2, "unknown name"), "bad_host"),
    ],
)
def test_a_port_that_cannot_be_had_is_explained(error: OSError, code: str) -> None:
    explained = cannot_listen("example.test", 2_700, "vosk_port", error)
    assert explained.code == code
    assert "example.test" in explained.message or "2700" in explained.message
    assert ("--vosk-port" in explained.remedy) == (code != "bad_host")


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(ServerConfig()) is None


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    config = ServerConfig(tls_cert=Path("no-such.pem"), tls_key=Path("no-such.key"))
    with pytest.raises(ConfigError, match="no-such"):
        tls_context(config)
