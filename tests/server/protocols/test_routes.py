from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from audiokv.server.config import ServerConfig
from audiokv.server.protocols.routes import OWN_PORTS, PATHS, Route, find_route

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Dialect

DIALECT_PARTS = ("open", "hear", "say", "refuse", "done", "tick", "miss")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_and_what_is_below_it_have_a_route(path: str) -> None:
    assert find_route(path) is find_route(f"{path}/") is find_route(f"{path}/x/y") is PATHS[path]


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/stream", "/v1/listening", "/x/v1/listen"])
def test_other_paths_have_none(path: str) -> None:
    assert find_route(path) is None


@pytest.mark.parametrize(
    "route",
    [*PATHS.values(), *(own.route for own in OWN_PORTS)],
    ids=[*PATHS, *(own.setting for own in OWN_PORTS)],
)
def test_each_connection_has_a_dialect_of_its_own(route: Route) -> None:
    config = ServerConfig()
    first, second = route.make(config), route.make(config)
    assert first is not second
    dialect: Dialect = first
    assert all(callable(getattr(dialect, part)) for part in DIALECT_PARTS)
    assert dialect.idle_timeout_s is None or dialect.idle_timeout_s > 0


def test_each_own_port_has_its_setting_and_is_closed_unless_it_is_set() -> None:
    settings = {own.setting for own in OWN_PORTS}
    ports = {f.name for f in fields(ServerConfig) if f.name.endswith("_port") and f.name != "port"}
    assert settings <= ports
    assert {getattr(ServerConfig(), setting) for setting in settings} == {None}
    assert {"vosk_port", "whisperlive_port", "wyoming_port", "audiosocket_port"} <= settings
