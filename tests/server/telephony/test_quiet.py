from __future__ import annotations

from audiokv.server.protocols.dialect import Farewell
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.quiet import CALL_IDLE_TIMEOUT_S, QuietDialect
from tests.server.telephony.fuzzing import a_caption


def test_nothing_is_said_to_a_source_that_only_sends() -> None:
    dialect = QuietDialect()
    assert dialect.say(a_caption()) == []
    assert dialect.tick() == []
    assert dialect.tick_every_s is None
    assert not dialect.can_wait
    assert dialect.idle_timeout_s == CALL_IDLE_TIMEOUT_S


def test_a_refusal_and_the_end_are_told_by_the_close() -> None:
    refusal = RefusalError(CloseCode.FULL, "full", "All streams are taken.", "Try again.")
    assert QuietDialect().refuse(refusal) == Farewell([], 1013, "full")
    assert QuietDialect().done().close_code == 1000
