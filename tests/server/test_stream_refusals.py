from __future__ import annotations

import pytest

from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.stream_refusals import (
    RETRY_AFTER_S,
    full,
    gave_way,
    unknown_resume,
    unknown_stream,
)


def test_a_full_server_says_when_to_try_again() -> None:
    refusal = full("full", "All 8 streams are taken.")
    assert (refusal.code, refusal.close_code) == ("full", CloseCode.FULL)
    assert refusal.retry_after_s == RETRY_AFTER_S
    assert str(int(RETRY_AFTER_S)) in refusal.remedy


def test_a_stream_that_gave_way_is_not_asked_to_try_again() -> None:
    assert (gave_way().code, gave_way().retry_after_s) == ("gave_way", None)


@pytest.mark.parametrize("refusal", [unknown_resume(), unknown_stream("s-1" * 100)])
def test_what_is_not_known_is_a_bad_message_with_a_remedy(refusal: RefusalError) -> None:
    assert refusal.close_code == CloseCode.BAD_MESSAGE
    assert refusal.remedy
    assert len(refusal.message) < 100
