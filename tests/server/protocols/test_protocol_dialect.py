from __future__ import annotations

import pytest

from audiokv.server.protocols.dialect import Farewell, PlainDialect, base_language


@pytest.mark.parametrize(
    ("tag", "language"),
    [("en", "en"), ("en-US", "en"), ("EN_us", "en"), ("zh-Hant-TW", "zh"), ("", "")],
)
def test_the_language_of_a_tag(tag: str, language: str) -> None:
    assert base_language(tag) == language


def test_a_plain_dialect_has_no_heartbeat_and_ends_well() -> None:
    dialect = PlainDialect()
    assert dialect.tick_every_s is None
    assert dialect.idle_timeout_s is None
    assert dialect.tick() == []
    assert dialect.done() == Farewell([], 1000, "done")
