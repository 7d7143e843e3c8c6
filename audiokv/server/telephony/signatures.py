"""Request signatures of the hosted providers: who opened the connection knows the shared secret.

Both sign the address as it was configured at the provider, so a server behind a proxy must know
its public address. Sources: Twilio's and Plivo's documentation of request validation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from audiokv.server.refusals import CloseCode, RefusalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.server.protocols.dialect import Opening

TWILIO_HEADERS = ("x-twilio-signature", "x-signalwire-signature")
_SCHEMES = ("wss", "ws", "https")


def addresses(opening: Opening, public_url: str | None) -> list[str]:
    """Return what the address of a connection may have been written like at the provider.

    Args:
        opening: The connection's opening.
        public_url: Scheme and host under which the server is reached, or None to go by the
            request's ``Host`` header.
    """
    query = urlencode([(name, value) for name, values in opening.query.items() for value in values])
    target = f"{opening.path}?{query}" if query else opening.path
    if public_url is not None:
        _, _, host = public_url.rstrip("/").partition("://")
    else:
        host = opening.headers.get("host", "")
    return [f"{scheme}://{host}{target}" for scheme in _SCHEMES]


def sorted_addresses(opening: Opening, public_url: str | None) -> list[str]:
    """Return the addresses as Plivo's libraries write them: the query decoded, and in order."""
    pairs = sorted((name, value) for name, values in opening.query.items() for value in values)
    query = "&".join(f"{name}={value}" for name, value in pairs)
    bare = replace(opening, query={})
    return [f"{url}?{query}" for url in addresses(bare, public_url)] if query else []


def signed(key: str, text: str, algorithm: str) -> str:
    """Return the HMAC of a text in base64.

    Args:
        key: The shared secret.
        text: What is signed.
        algorithm: Name of the hash: ``sha1`` or ``sha256``.
    """
    digest = hmac.new(key.encode(), text.encode("utf-8", "replace"), algorithm).digest()
    return base64.b64encode(digest).decode()


def is_any(presented: str, expected: Iterable[str]) -> bool:
    """Return whether a signature is one of those expected, in a time that tells nothing of them."""
    given = hashlib.sha256(presented.encode("utf-8", "replace")).digest()
    found = [hmac.compare_digest(given, hashlib.sha256(e.encode()).digest()) for e in expected]
    return any(found)


def check_twilio(opening: Opening, secret: str, public_url: str | None = None) -> None:
    """Let a connection in whose ``X-Twilio-Signature`` is right: HMAC-SHA1 over the address.

    Args:
        opening: The connection's opening.
        secret: The account's auth token; SignalWire's signing key.
        public_url: As for `addresses`.

    Raises:
        RefusalError: The signature is missing or wrong (4401).
    """
    expected = [signed(secret, url, "sha1") for url in addresses(opening, public_url)]
    presented = [opening.headers.get(name, "") for name in TWILIO_HEADERS]
    if not any(is_any(one, expected) for one in presented):
        raise wrong_signature("X-Twilio-Signature")


def check_plivo(opening: Opening, secret: str, public_url: str | None = None) -> None:
    """Let a connection in whose Plivo signature is right: HMAC-SHA256 over address and nonce.

    Version 3 joins them with a dot; version 2 does not, and leaves the query out. Several
    signatures may be listed. A call of a subaccount is signed with the main account's token too, in
    a header of its own.

    Args:
        opening: The connection's opening.
        secret: The account's auth token.
        public_url: As for `addresses`.

    Raises:
        RefusalError: The signature is missing or wrong (4401).
    """
    headers = opening.headers
    whole = [*addresses(opening, public_url), *sorted_addresses(opening, public_url)]
    bare = addresses(replace(opening, query={}), public_url)
    for version, joint, urls in (("v3", ".", whole), ("v2", "", bare)):
        nonce = headers.get(f"x-plivo-signature-{version}-nonce", "")
        names = (f"x-plivo-signature-{version}", f"x-plivo-signature-ma-{version}")
        presented = ",".join(headers.get(name, "") for name in names)
        expected = [signed(secret, f"{url}{joint}{nonce}", "sha256") for url in urls]
        if nonce and any(is_any(one.strip(), expected) for one in presented.split(",")):
            return
    raise wrong_signature("X-Plivo-Signature-V3")


def wrong_signature(header: str) -> RefusalError:
    """Return the refusal of a connection that is not signed with the secret."""
    return RefusalError(
        CloseCode.NOT_AUTHORIZED,
        "bad_signature",
        f"The request's {header} is missing or wrong.",
        "Check the secret, and set public_url to the address configured at the provider.",
    )
