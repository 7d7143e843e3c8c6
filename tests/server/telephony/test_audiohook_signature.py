from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Opening
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.audiohook_signature import (
    MAX_AGE_S,
    AudioHookKey,
    check_audiohook,
)

# The example in Genesys' documentation of AudioHook's security.
KEY = AudioHookKey(
    "SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh", "TXlTdXBlclNlY3JldEtleVRlbGxOby0xITJAMyM0JDU="
)
COMPONENTS = (
    '"@request-target" "@authority" "audiohook-organization-id" "audiohook-session-id" '
    '"audiohook-correlation-id" "x-api-key"'
)
HEADERS = {
    "host": "audiohook.example.com",
    "audiohook-organization-id": "d7934305-0972-4844-938e-9060eef73d05",
    "audiohook-session-id": "30b0e395-84d3-4570-ac13-9a62d8f514c0",
    "audiohook-correlation-id": "e160e428-53e2-487c-977d-96989bf5c99d",
    "x-api-key": "SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh",
    "signature": "sig1=:NZBwyBHRRyRoeLqy1IzOa9VYBuI8TgMFt2GRDkDuJh4=:",
    "signature-input": (
        f'sig1=({COMPONENTS});keyid="SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh";'
        'nonce="VGhpc0lzQVVuaXF1ZU5vbmNl";alg="hmac-sha256";created=1641013200;expires=3282026430'
    ),
}
PATH = "/api/v1/voicebiometrics/ws"
CREATED_S = 1_641_013_200.0


def opening(path: str = PATH, **changes: str) -> Opening:
    headers = {**HEADERS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return Opening(path, {}, headers)


def is_let_in(
    one: Opening,
    *,
    key: AudioHookKey = KEY,
    now_s: float = CREATED_S,
    public_url: str | None = None,
) -> bool:
    try:
        check_audiohook(one, key, now_s=now_s, public_url=public_url)
    except RefusalError as refusal:
        assert refusal.close_code == CloseCode.NOT_AUTHORIZED  # noqa: PT017  both are answers here
        return False
    return True


def test_the_documented_example_comes_in() -> None:
    assert is_let_in(opening())


@pytest.mark.parametrize(
    "changes",
    [
        {"x_api_key": "other"},
        {"host": "elsewhere.example.com"},
        {"audiohook_session_id": "31b0e395-84d3-4570-ac13-9a62d8f514c0"},
        {"signature": "sig1=:AAAA:"},
        {"signature": "sig2=:NZBwyBHRRyRoeLqy1IzOa9VYBuI8TgMFt2GRDkDuJh4=:"},
        {"signature": "sig1=:A:"},
        {"signature": ""},
        {"signature_input": ""},
        {"signature_input": "x" * 3_000},
        {"signature_input": 'sig1=("x-api-key");keyid="a"'},
        {"signature_input": HEADERS["signature-input"].replace("created=1641013200;", "")},
        {"signature_input": HEADERS["signature-input"].replace("hmac-sha256", "none")},
        {"signature_input": HEADERS["signature-input"].replace('"@authority" ', "")},
    ],
)
def test_whatever_differs_is_turned_away(changes: dict[str, str]) -> None:
    assert not is_let_in(opening(**changes))


def test_another_address_is_turned_away_and_the_public_one_counts() -> None:
    assert not is_let_in(opening("/elsewhere"))
    behind_proxy = opening(host="10.0.0.7:8765")
    assert not is_let_in(behind_proxy)
    assert is_let_in(behind_proxy, public_url="https://AudioHook.example.com/")


@pytest.mark.parametrize(("late_s", "is_in"), [(-30, False), (-5, True), (25, True), (31, False)])
def test_a_signature_has_its_time(late_s: float, is_in: bool) -> None:  # noqa: FBT001  expected
    assert is_let_in(opening(), now_s=CREATED_S + late_s) is is_in
    assert MAX_AGE_S == 30


def test_another_secret_is_turned_away_also_one_that_is_no_base64() -> None:
    for secret in ("AAAA", "no base64"):
        assert not is_let_in(opening(), key=AudioHookKey(KEY.api_key, secret))


def test_without_a_secret_the_key_is_enough() -> None:
    unsigned = Opening(PATH, {}, {"x-api-key": KEY.api_key})
    assert is_let_in(unsigned, key=AudioHookKey(KEY.api_key))
    assert not is_let_in(unsigned)
    assert not is_let_in(Opening(PATH), key=AudioHookKey(KEY.api_key))


def test_a_query_belongs_to_what_is_signed() -> None:
    params = HEADERS["signature-input"].removeprefix("sig1=")
    values = [f"{PATH}?language=de", *(HEADERS[name] for name in _names())]
    names = COMPONENTS.split()
    lines = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
    base = "\n".join([*lines, f'"@signature-params": {params}'])
    digest = hmac.new(base64.b64decode(KEY.client_secret), base.encode(), hashlib.sha256).digest()
    signature = f"sig1=:{base64.b64encode(digest).decode()}:"
    with_query = Opening(PATH, {"language": ("de",)}, {**HEADERS, "signature": signature})
    assert is_let_in(with_query)


def _names() -> list[str]:
    return [
        "host",
        "audiohook-organization-id",
        "audiohook-session-id",
        "audiohook-correlation-id",
        "x-api-key",
    ]


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_header_breaks_the_check(declared: str, given_signature: str) -> None:
    assert not is_let_in(opening(signature_input=declared, signature=given_signature))
