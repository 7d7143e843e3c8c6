from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from audiokv.server.config import ServerConfig
from audiokv.server.config_loading import load_config
from audiokv.server.protocols.dialect import Opening
from audiokv.server.refusals import RefusalError
from audiokv.server.telephony.calls import make_audiohook, make_plivo, make_twilio
from audiokv.server.telephony.signatures import signed
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.server.protocols.dialect import Dialect

TOKEN = "correct-horse"  # noqa: S105  a test's
MAKERS = (make_twilio, make_plivo, make_audiohook)


def is_let_in(dialect: Dialect, path: str = "/p", **headers: str) -> bool:
    try:
        dialect.open(
            Opening(path, {}, {name.replace("_", "-"): text for name, text in headers.items()})
        )
    except RefusalError:
        return False
    return True


@pytest.mark.parametrize("make", MAKERS)
def test_without_any_secret_everyone_comes_in(make: Callable[[ServerConfig], Dialect]) -> None:
    assert is_let_in(make(ServerConfig()))


@pytest.mark.parametrize("make", MAKERS)
def test_without_a_providers_secret_the_token_is_asked_for(
    make: Callable[[ServerConfig], Dialect],
) -> None:
    config = ServerConfig(token=TOKEN)
    assert is_let_in(make(config), authorization=f"Bearer {TOKEN}")
    assert is_let_in(make(config), sec_websocket_protocol=f"audiokv.v1, bearer.{TOKEN}")
    assert not is_let_in(make(config), authorization="Bearer other")
    assert not is_let_in(make(config))


def test_a_foreign_web_page_stays_outside() -> None:
    dialect = make_twilio(ServerConfig())
    assert not is_let_in(dialect, origin="https://evil.example", host="127.0.0.1:8765")


def test_twilios_signature_replaces_the_token() -> None:
    config = ServerConfig(
        token=TOKEN,
        twilio_auth_token="secret",  # noqa: S106  a test's
        public_url="wss://out.example",
    )
    right = signed("secret", "wss://out.example/p", "sha1")
    assert is_let_in(make_twilio(config), x_twilio_signature=right)
    assert not is_let_in(make_twilio(config), authorization=f"Bearer {TOKEN}")


def test_plivos_signature_replaces_the_token() -> None:
    config = ServerConfig(
        plivo_auth_token="secret",  # noqa: S106  a test's
        public_url="wss://out.example",
    )
    headers = {
        "x_plivo_signature_v3": signed("secret", "wss://out.example/p.17", "sha256"),
        "x_plivo_signature_v3_nonce": "17",
    }
    assert is_let_in(make_plivo(config), **headers)
    assert not is_let_in(make_plivo(config), **{**headers, "x_plivo_signature_v3_nonce": "18"})


def test_audiohook_needs_its_key_and_a_signature_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ServerConfig(audiohook_api_key="key")
    assert is_let_in(make_audiohook(plain), x_api_key="key")
    assert not is_let_in(make_audiohook(plain), x_api_key="other")
    # The example in Genesys' documentation of AudioHook's security.
    signing = ServerConfig(
        audiohook_api_key="SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh",
        audiohook_client_secret="TXlTdXBlclNlY3JldEtleVRlbGxOby0xITJAMyM0JDU=",  # noqa: S106
        public_url="wss://audiohook.example.com",
    )
    headers = {
        "audiohook_organization_id": "d7934305-0972-4844-938e-9060eef73d05",
        "audiohook_session_id": "30b0e395-84d3-4570-ac13-9a62d8f514c0",
        "audiohook_correlation_id": "e160e428-53e2-487c-977d-96989bf5c99d",
        "x_api_key": "SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh",
        "signature": "sig1=:NZBwyBHRRyRoeLqy1IzOa9VYBuI8TgMFt2GRDkDuJh4=:",
        "signature_input": (
            'sig1=("@request-target" "@authority" "audiohook-organization-id" '
            '"audiohook-session-id" "audiohook-correlation-id" "x-api-key");'
            'keyid="SGVsbG8sIEkgYW0gdGhlIEFQSSBrZXkh";nonce="VGhpc0lzQVVuaXF1ZU5vbmNl";'
            'alg="hmac-sha256";created=1641013200;expires=3282026430'
        ),
    }
    path = "/api/v1/voicebiometrics/ws"
    assert not is_let_in(make_audiohook(signing), path, **headers)
    monkeypatch.setattr(time, "time", lambda: 1_641_013_205.0)
    assert is_let_in(make_audiohook(signing), path, **headers)


def test_audiosocket_opens_beyond_this_machine_only_by_a_word() -> None:
    with pytest.raises(ConfigError, match="audiosocket_port knows no token"):
        ServerConfig(host="0.0.0.0", token=TOKEN, audiosocket_port=9092)  # noqa: S104  not bound
    ServerConfig(
        host="0.0.0.0",  # noqa: S104  not bound
        token=TOKEN,
        audiosocket_port=9092,
        allow_anonymous=True,
    )


@pytest.mark.parametrize(
    "name",
    ["twilio_auth_token", "plivo_auth_token", "audiohook_api_key", "audiohook_client_secret"],
)
def test_secrets_of_providers_are_not_printed(name: str) -> None:
    lines = load_config({name: "hidden-words"}, {}).lines()
    assert f"{name} = ******** (flag)" in lines
    assert not [line for line in lines if "hidden-words" in line]
