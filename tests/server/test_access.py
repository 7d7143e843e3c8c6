from __future__ import annotations

import base64
from typing import Any

import pytest

from audiokv.server.access import (
    AccessRules,
    Credentials,
    choose_subprotocol,
    offered_subprotocols,
)
from audiokv.server.config import ServerConfig
from audiokv.server.refusals import RefusalError

TOKEN = "correct-horse"  # noqa: S105  of a test


def client(
    authorization: str | None = None,
    subprotocols: tuple[str, ...] = (),
    origin: str | None = None,
    host: str | None = "127.0.0.1:8765",
) -> Credentials:
    return Credentials(authorization, subprotocols, origin, host)


def refusal_of(who: Credentials, **settings: Any) -> int | None:
    try:
        AccessRules(ServerConfig(**settings)).check(who)
    except RefusalError as refusal:
        return refusal.close_code
    return None


def basic(pair: str) -> str:
    return base64.b64encode(pair.encode()).decode()


@pytest.mark.parametrize(
    "who",
    [
        client(authorization=f"Bearer {TOKEN}"),
        client(authorization=f"bearer  {TOKEN} "),
        client(subprotocols=("audiokv.v1", f"bearer.{TOKEN}")),
        client(subprotocols=("bearer.wrong", f"bearer.{TOKEN}")),
        client(authorization="Bearer wrong", subprotocols=(f"bearer.{TOKEN}",)),
        client(authorization=f"Basic {basic(f'pbx:{TOKEN}')}"),
        client(authorization=f"basic  {basic(f':{TOKEN}')} "),
    ],
)
def test_the_right_token_opens(who: Credentials) -> None:
    assert refusal_of(who, token=TOKEN) is None


@pytest.mark.parametrize(
    "who",
    [
        client(),
        client(authorization=TOKEN),
        client(authorization="Bearer "),
        client(authorization=f"Bearer {TOKEN}x"),
        client(authorization=f"Bearer {TOKEN[:-1]}"),
        client(authorization=f"Basic {TOKEN}"),
        client(authorization=f"Basic {basic(TOKEN)}"),
        client(authorization=f"Basic {basic(f'{TOKEN}:pbx')}"),
        client(authorization="Basic /w=="),
        client(authorization="Basic ü"),
        client(authorization="Bearer \udcff\xff"),
        client(subprotocols=(TOKEN,)),
        client(subprotocols=("audiokv.v1", f"bearer {TOKEN}")),
    ],
)
def test_anything_else_does_not(who: Credentials) -> None:
    assert refusal_of(who, token=TOKEN) == 4401


def test_without_a_token_everyone_may_come() -> None:
    assert refusal_of(client()) is None
    assert refusal_of(client(authorization="Bearer anything")) is None


@pytest.mark.parametrize(
    ("origin", "host", "settings", "is_allowed"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1:8765", {}, True),
        ("http://localhost:8765", "localhost:8765", {}, True),
        ("http://LOCALHOST:8765", "localhost:8765", {}, True),
        ("http://[::1]:8765", "[::1]:8765", {}, True),
        ("http://localhost", "localhost:80", {}, True),
        ("https://localhost", "localhost", {}, True),
        ("http://localhost:8765", "127.0.0.1:8765", {}, False),
        ("http://localhost:3000", "localhost:8765", {}, False),
        ("https://evil.example", "127.0.0.1:8765", {}, False),
        ("http://evil.example:8765", "evil.example:8765", {}, False),
        ("null", "127.0.0.1:8765", {}, False),
        ("", "127.0.0.1:8765", {}, False),
        ("http://localhost:no", "localhost:8765", {}, False),
        ("http://[broken", "localhost:8765", {}, False),
        ("http://localhost:8765", None, {}, False),
        ("https://a.example", "127.0.0.1:8765", {"allowed_origins": ("https://a.example/",)}, True),
        ("https://A.example", "127.0.0.1:8765", {"allowed_origins": ("https://a.example",)}, True),
        ("https://b.example", "127.0.0.1:8765", {"allowed_origins": ("https://a.example",)}, False),
        ("https://b.example", "127.0.0.1:8765", {"allowed_origins": ("*",)}, True),
        (
            "http://hall.example:8765",
            "hall.example:8765",
            {"host": "0.0.0.0", "allow_anonymous": True},  # noqa: S104  not bound
            True,
        ),
    ],
)
def test_pages_of_other_origins_are_kept_out(
    origin: str, host: str | None, settings: dict[str, Any], *, is_allowed: bool
) -> None:
    expected = None if is_allowed else 1008
    assert refusal_of(client(origin=origin, host=host), **settings) == expected


def test_the_subprotocol_is_ours_or_one_of_the_route_or_none() -> None:
    offered = offered_subprotocols(["audiokv.v1, bearer.x", "media"])
    assert offered == ("audiokv.v1", "bearer.x", "media")
    assert choose_subprotocol(offered) == "audiokv.v1"
    assert choose_subprotocol(("media",)) is None
    assert choose_subprotocol(("media", "token"), ("token", "media")) == "token"
    assert choose_subprotocol(("audiokv.v1",), ("media",)) is None
    assert choose_subprotocol(offered_subprotocols([" , "])) is None
