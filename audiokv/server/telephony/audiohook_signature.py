"""The signature of a Genesys AudioHook request: HTTP Message Signatures with HMAC-SHA256.

Source: AudioHook's description of its security, and the draft that became RFC 9421.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from audiokv.server.telephony.signatures import wrong_signature

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Opening

MAX_AGE_S = 30.0
MAX_CLOCK_SKEW_S = 10.0
_MIN_NONCE_CHARS = 22
_MAX_HEADER_CHARS = 2_000
REQUIRED = (
    "@request-target",
    "@authority",
    "audiohook-organization-id",
    "audiohook-session-id",
    "audiohook-correlation-id",
    "x-api-key",
)
_INPUT = re.compile(r'\s*([a-z*][a-z0-9_.*-]*)=(\(((?:"[^"\\]*"[ ]*)*)\)((?:;[^,]*)?))\s*')
_COMPONENT = re.compile(r'"([^"\\]*)"')
_TEXT_PARAMETER = re.compile(r';\s*([a-z]+)="([^"\\]*)"')
_NUMBER_PARAMETER = re.compile(r";\s*([a-z]+)=(\d{1,12})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class AudioHookKey:
    """What Genesys and this server share.

    Attributes:
        api_key: Value of the ``X-API-KEY`` header.
        client_secret: The client secret, in base64; empty where requests are not signed.
    """

    api_key: str
    client_secret: str = ""


def check_audiohook(
    opening: Opening, key: AudioHookKey, *, now_s: float, public_url: str | None = None
) -> None:
    """Let a connection in that has the key and, where there is a secret, a fresh signature.

    Args:
        opening: The connection's opening.
        key: What is shared.
        now_s: Seconds since 1970.
        public_url: Scheme and host under which the server is reached, or None to go by the
            request's ``Host`` header.

    Raises:
        RefusalError: Key or signature are missing, wrong or too old (4401).
    """
    presented = opening.headers.get("x-api-key", "")
    if not hmac.compare_digest(_hash(presented), _hash(key.api_key)):
        raise wrong_signature("X-API-KEY")
    if key.client_secret and not _is_signed(opening, key, now_s, public_url):
        raise wrong_signature("Signature")


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _is_signed(opening: Opening, key: AudioHookKey, now_s: float, public_url: str | None) -> bool:
    declared = opening.headers.get("signature-input", "")
    given = opening.headers.get("signature", "")
    if max(len(declared), len(given)) > _MAX_HEADER_CHARS:
        return False
    found = _INPUT.fullmatch(declared)
    if found is None:
        return False
    label, params, components, tail = found[1], found[2], _COMPONENT.findall(found[3]), found[4]
    if not set(REQUIRED) <= set(components) or not _is_fresh(tail, key, now_s):
        return False
    lines = [f'"{name}": {_component(name, opening, public_url)}' for name in components]
    base = "\n".join([*lines, f'"@signature-params": {params}'])
    try:
        secret = base64.b64decode(key.client_secret, validate=True)
    except (binascii.Error, ValueError):
        return False
    expected = hmac.new(secret, base.encode("utf-8", "replace"), "sha256").digest()
    return hmac.compare_digest(_signature_bytes(label, given), expected)


def _is_fresh(tail: str, key: AudioHookKey, now_s: float) -> bool:
    texts = dict(_TEXT_PARAMETER.findall(tail))
    numbers = {name: int(number) for name, number in _NUMBER_PARAMETER.findall(tail)}
    created = numbers.get("created", 0)
    expires = numbers.get("expires", created + int(MAX_AGE_S))
    return (
        texts.get("alg") == "hmac-sha256"
        and texts.get("keyid") == key.api_key
        and len(texts.get("nonce", "")) >= _MIN_NONCE_CHARS
        and created - MAX_CLOCK_SKEW_S <= now_s <= min(expires, created + MAX_AGE_S)
    )


def _component(name: str, opening: Opening, public_url: str | None) -> str:
    if name == "@request-target":
        pairs = [(key, value) for key, values in opening.query.items() for value in values]
        return f"{opening.path}?{urlencode(pairs)}" if pairs else opening.path
    if name == "@authority":
        host = opening.headers.get("host", "")
        return (public_url.rstrip("/").partition("://")[2] if public_url else host).lower()
    return opening.headers.get(name, "").strip()


def _signature_bytes(label: str, header: str) -> bytes:
    found = re.fullmatch(rf"\s*{re.escape(label)}=:([A-Za-z0-9+/=]*):\s*", header)
    try:
        return base64.b64decode(found[1], validate=True) if found else b""
    except (binascii.Error, ValueError):
        return b""
