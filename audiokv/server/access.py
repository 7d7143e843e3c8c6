"""Who may connect: the token, and the web pages whose scripts may."""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.streaming.messages import BEARER_SUBPROTOCOL_PREFIX, SUBPROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from audiokv.server.config import ServerConfig

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Whose value is the token: RFC 6750's, and Deepgram's.
_SCHEMES = frozenset({"bearer", "token"})
# Subprotocols whose name carries the token: ours, and OpenAI's for browsers.
_TOKEN_PREFIXES = (BEARER_SUBPROTOCOL_PREFIX, "openai-insecure-api-key.")
# Subprotocols that the next one offered follows as the token: Deepgram's for browsers.
_TOKEN_MARKS = frozenset({"token", "bearer"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client's opening request says about it.

    Attributes:
        authorization: The ``Authorization`` header, or None.
        subprotocols: Subprotocols offered, in order.
        origin: The ``Origin`` header, or None (not a browser).
        host: The ``Host`` header, or None.
    """

    authorization: str | None
    subprotocols: tuple[str, ...]
    origin: str | None
    host: str | None


def offered_subprotocols(headers: Iterable[str]) -> tuple[str, ...]:
    """Return the subprotocols of ``Sec-WebSocket-Protocol`` headers, in order."""
    return tuple(name for value in headers for part in value.split(",") if (name := part.strip()))


def choose_subprotocol(offered: Sequence[str], known: Sequence[str] = (SUBPROTOCOL,)) -> str | None:
    """Return the subprotocol to speak: the first known one offered, or none; never an error.

    A browser that offers some and is granted none breaks off.
    """
    return next((name for name in known if name in offered), None)


class AccessRules:
    """Checks clients against the settings.

    Args:
        config: The server's settings.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._token = None if config.token is None else config.token.encode()
        self._allowed_origins = frozenset(o.rstrip("/").lower() for o in config.allowed_origins)
        self._is_loopback = config.is_loopback

    def check(self, client: Credentials) -> None:
        """Let a client in or not.

        Raises:
            RefusalError: Its origin is not allowed (1008) or its token is missing or wrong (4401).
        """
        if client.origin is not None and not self._is_allowed(client.origin, client.host):
            raise RefusalError(
                CloseCode.NOT_ALLOWED,
                "origin_not_allowed",
                f"Pages of {client.origin[:100]} may not use this server.",
                "Add the origin to allowed_origins.",
            )
        if self._token is not None and not self._is_token_right(client):
            raise RefusalError(
                CloseCode.NOT_AUTHORIZED,
                "not_authorized",
                "The token is missing or wrong.",
                "Send 'Authorization: Bearer TOKEN', or offer the subprotocols "
                f"{SUBPROTOCOL} and {BEARER_SUBPROTOCOL_PREFIX}TOKEN.",
            )

    def _is_allowed(self, origin: str, host: str | None) -> bool:
        if "*" in self._allowed_origins or origin.lower() in self._allowed_origins:
            return True
        try:
            page = urlsplit(origin)
            page_port = page.port or _DEFAULT_PORTS.get(page.scheme)
            server = urlsplit(f"//{host}")
            server_port = server.port or _DEFAULT_PORTS.get(page.scheme)
        except ValueError:
            return False
        if page.hostname is None or (page.hostname, page_port) != (server.hostname, server_port):
            return False
        # A foreign name that resolves to this machine must not make its page one of ours.
        return not self._is_loopback or page.hostname in _LOOPBACK_NAMES

    def _is_token_right(self, client: Credentials) -> bool:
        names = client.subprotocols
        presented = [
            name.removeprefix(prefix)
            for name in names
            for prefix in _TOKEN_PREFIXES
            if name.startswith(prefix)
        ]
        presented += [after for mark, after in pairwise(names) if mark in _TOKEN_MARKS]
        scheme, _, value = (client.authorization or "").partition(" ")
        if scheme.lower() in _SCHEMES:
            presented.append(value.strip())
        elif scheme.lower() == "basic":
            presented.append(_password(value))
        right = self._token or b""
        return any(
            hmac.compare_digest(token.encode(errors="replace"), right) for token in presented
        )


def _password(value: str) -> str:
    """Return the password of HTTP Basic credentials (RFC 7617), empty where there is none.

    Telephone exchanges can present a user's name and password, and no other header.
    """
    try:
        pair = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return pair.partition(":")[2]
