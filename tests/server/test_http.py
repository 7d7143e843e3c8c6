from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from audiokv.server.http import answer, is_socket_path, is_upgrade, path_of, refuse_handshake
from audiokv.server.pages import Page
from audiokv.server.refusals import CloseCode, RefusalError

if TYPE_CHECKING:
    from websockets.http11 import Response

PAGES = {"/": Page("text/html; charset=utf-8", b"<html>"), "/a.js": Page("text/javascript", b"1")}
HEALTH: dict[str, object] = {"status": "ok", "streams": 0}


def ask(path: str, method: str = "GET") -> Response:
    return answer(Request(path, Headers(), method), PAGES, HEALTH)


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/", "text/html; charset=utf-8", b"<html>"),
        ("/?lang=de", "text/html; charset=utf-8", b"<html>"),
        ("/a.js", "text/javascript", b"1"),
        ("/health", "application/json", json.dumps(HEALTH).encode()),
    ],
)
def test_what_is_there_is_served(path: str, content_type: str, body: bytes) -> None:
    response = ask(path)
    assert (response.status_code, response.body) == (200, body)
    assert response.headers["Content-Type"] == content_type
    assert response.headers["Content-Length"] == str(len(body))
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_head_is_get_without_the_body() -> None:
    response = ask("/a.js", "HEAD")
    assert (response.status_code, response.body) == (200, b"")
    assert response.headers["Content-Length"] == "1"


@pytest.mark.parametrize(
    "path",
    [
        "/b.js",
        "/../pages.py",
        "/%2e%2e/pages.py",
        "//etc/passwd",
        "/a.js/",
        "/A.js",
        "a.js",
        "",
        "/\\a.js",
    ],
)
def test_nothing_else_exists(path: str) -> None:
    assert ask(path).status_code == 404


def test_a_socket_path_asks_for_an_upgrade() -> None:
    response = ask("/v1/stream")
    assert response.status_code == 426
    assert response.headers["Upgrade"] == "websocket"
    assert ask("/v1/watch/s-1").status_code == 426


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "get"])
def test_other_methods_are_refused(method: str) -> None:
    response = ask("/", method)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("status", ["failed", "overloaded"])
def test_bad_health_has_a_status_that_monitors_see(status: str) -> None:
    response = answer(Request("/health", Headers()), PAGES, {"status": status})
    assert response.status_code == 503
    assert json.loads(response.body) == {"status": status}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        ({"Upgrade": "h2c"}, False),
        ({"Upgrade": "websocket"}, True),
        ({"Upgrade": "h2c, WebSocket"}, True),
    ],
)
def test_upgrades_are_known(headers: dict[str, str], *, expected: bool) -> None:
    assert is_upgrade(Request("/", Headers(headers))) is expected


def test_paths_are_compared_without_the_query() -> None:
    assert path_of(Request("/v1/stream?x=/health", Headers())) == "/v1/stream"
    assert is_socket_path("/v1/watch/s-1")
    assert not is_socket_path("/v1/streams")


@pytest.mark.parametrize("path", ["/v1/listen", "/v1/realtime", "/v1/listen/x"])
def test_foreign_protocols_are_socket_paths(path: str) -> None:
    assert is_socket_path(path)
    assert ask(path).status_code == 426


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (CloseCode.NOT_AUTHORIZED, 401),
        (CloseCode.NOT_ALLOWED, 403),
        (CloseCode.FULL, 503),
        (CloseCode.BAD_MESSAGE, 403),
    ],
)
def test_a_handshake_is_refused_with_the_status_that_fits(code: CloseCode, status: int) -> None:
    response = refuse_handshake(RefusalError(code, "x", "What.", "How.", retry_after_s=10))
    assert response.status_code == status
    assert response.body == b"What. How.\n"
    assert response.headers["Retry-After"] == "10"
    assert "Retry-After" not in refuse_handshake(RefusalError(code, "x", "m", "r")).headers
