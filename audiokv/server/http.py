"""What the server answers to plain HTTP requests on its one port."""

from __future__ import annotations

import json
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from audiokv.server.pages import SECURITY_HEADERS
from audiokv.server.protocols.routes import find_route
from audiokv.server.refusals import CloseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.server.pages import Page
    from audiokv.server.refusals import RefusalError

STREAM_PATH = "/v1/stream"
WATCH_PREFIX = "/v1/watch/"
HEALTH_PATH = "/health"

_STATUSES = {
    CloseCode.NOT_AUTHORIZED: HTTPStatus.UNAUTHORIZED,
    CloseCode.FULL: HTTPStatus.SERVICE_UNAVAILABLE,
}
_TEXT = "text/plain; charset=utf-8"


def path_of(request: Request) -> str:
    """Return the path without the query."""
    return request.path.partition("?")[0]


def is_upgrade(request: Request) -> bool:
    """Return whether a request wants to become a WebSocket."""
    wanted = ",".join(request.headers.get_all("Upgrade"))
    return "websocket" in (part.strip().lower() for part in wanted.split(","))


def is_socket_path(path: str) -> bool:
    """Return whether a WebSocket may be opened here."""
    return path == STREAM_PATH or path.startswith(WATCH_PREFIX) or find_route(path) is not None


def respond(
    status: HTTPStatus,
    body: bytes,
    content_type: str = _TEXT,
    extra: Mapping[str, str] | None = None,
) -> Response:
    """Return a complete response after which the connection is closed."""
    headers = Headers(
        {
            "Date": formatdate(usegmt=True),
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Type": content_type,
            **SECURITY_HEADERS,
            **(extra or {}),
        }
    )
    return Response(status.value, status.phrase, headers, body)


def refuse_request(
    status: HTTPStatus, message: str, extra: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a line of plain text."""
    return respond(status, f"{message}\n".encode(), extra=extra)


def ask_for_upgrade() -> Response:
    """Return the response to plain HTTP where only WebSockets are served."""
    return refuse_request(
        HTTPStatus.UPGRADE_REQUIRED, "Open a WebSocket here.", {"Upgrade": "websocket"}
    )


def refuse_handshake(refusal: RefusalError) -> Response:
    """Return the response that refuses a WebSocket before it is open."""
    status = _STATUSES.get(refusal.close_code, HTTPStatus.FORBIDDEN)
    retry_s = refusal.retry_after_s
    extra = {} if retry_s is None else {"Retry-After": f"{retry_s:.0f}"}
    return refuse_request(status, f"{refusal.message} {refusal.remedy}", extra)


def answer(request: Request, pages: Mapping[str, Page], health: Mapping[str, object]) -> Response:
    """Return the response to a request that is not an upgrade."""
    if request.method not in ("GET", "HEAD"):
        return refuse_request(
            HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD.", {"Allow": "GET, HEAD"}
        )
    path = path_of(request)
    page = pages.get(path)
    if path == HEALTH_PATH:
        is_well = health["status"] == "ok"
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        response = respond(status, json.dumps(health).encode(), "application/json")
    elif page is not None:
        response = respond(HTTPStatus.OK, page.body, page.content_type)
    elif is_socket_path(path):
        response = ask_for_upgrade()
    else:
        response = refuse_request(HTTPStatus.NOT_FOUND, "There is nothing here.")
    if request.method == "HEAD":
        response.body = b""
    return response
