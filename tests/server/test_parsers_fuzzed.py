"""20,000 inputs for every parser of what comes from outside: no exception but its own error."""

from __future__ import annotations

import pytest

from audiokv.server.protocols.routes import OWN_PORTS, PATHS
from tests.server.attacked import ATTACKED
from tests.server.mutations import attack
from tests.server.valid_messages import MESSAGES


def test_no_protocol_is_left_out() -> None:
    routed = {*PATHS, *(own.setting for own in OWN_PORTS)}
    assert set(MESSAGES) == routed
    assert routed < set(ATTACKED)


@pytest.mark.parametrize("name", ATTACKED)
def test_nothing_but_its_own_error(name: str) -> None:
    attack(ATTACKED[name])
