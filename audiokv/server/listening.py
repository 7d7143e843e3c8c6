"""What a listening port is made of besides its protocol: TLS, errors, and how a client came."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from audiokv.server import http
from audiokv.server.access import Credentials, offered_subprotocols
from audiokv.server.protocols.dialect import Opening
from audiokv.streaming.errors import ConfigError, MessageError

if TYPE_CHECKING:
    from websockets.http11 import Request

    from audiokv.models.base import RecognizerInfo
    from audiokv.server.config import ServerConfig

MAX_QUERY_FIELDS = 200


def credentials_of(request: Request) -> Credentials:
    """Return what a request says about its client."""
    headers = request.headers
    return Credentials(
        authorization=next(iter(headers.get_all("Authorization")), None),
        subprotocols=offered_subprotocols(headers.get_all("Sec-WebSocket-Protocol")),
        origin=next(iter(headers.get_all("Origin")), None),
        host=next(iter(headers.get_all("Host")), None),
    )


def opening_of(request: Request, info: RecognizerInfo, config: ServerConfig) -> Opening:
    """Return how a WebSocket was opened.

    Raises:
        MessageError: The address has too many parameters.
    """
    headers: dict[str, str] = {}
    for name, value in request.headers.raw_items():
        headers.setdefault(name.lower(), value)
    try:
        query = parse_qs(
            request.path.partition("?")[2],
            keep_blank_values=True,
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except ValueError:
        raise MessageError(
            "bad_query",
            f"The address has more than {MAX_QUERY_FIELDS} parameters.",
            "Leave out what is not needed.",
        ) from None
    return Opening(
        path=http.path_of(request),
        query={name: tuple(values) for name, values in query.items()},
        headers=headers,
        model=info.name,
        languages=info.languages,
        pause_ms=config.pause_ms,
    )


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Return the TLS settings, or None when the server speaks plain text.

    Raises:
        ConfigError: The certificate or key cannot be used.
    """
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except OSError as error:
        raise ConfigError(
            "bad_tls",
            f"The TLS files {config.tls_cert} and {config.tls_key} cannot be used: {error}.",
            "Name a PEM certificate and the key that belongs to it.",
        ) from error
    return context


def cannot_listen(host: str, port: int, setting: str, error: OSError) -> ConfigError:
    """Return the error that tells why a port could not be opened.

    Args:
        host: The address.
        port: The port's number.
        setting: Name of the setting with the port's number.
        error: What the system said.
    """
    flag = f"--{setting.replace('_', '-')}"
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            "port_in_use",
            f"Port {port} of {host} is in use.",
            f"Stop the other program, or choose another with {flag}.",
        )
    if error.errno == errno.EACCES:
        return ConfigError(
            "port_not_allowed",
            f"Port {port} may not be used by this account.",
            f"Choose a port above 1023 with {flag}.",
        )
    reason = error.strerror or str(error)
    what = "name" if isinstance(error, socket.gaierror) else "address"
    return ConfigError(
        "bad_host",
        f"The {what} {host!r} cannot be listened on: {reason}.",
        "Choose an address of this machine with --host.",
    )
