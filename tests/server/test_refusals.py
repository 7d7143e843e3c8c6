from __future__ import annotations

import pytest

from audiokv.server.refusals import (
    CloseCode,
    RefusalError,
    as_refusal,
    as_report,
    internal_refusal,
)
from audiokv.streaming.errors import AudioFormatError, AudioKVError, MessageError, WeightsError


@pytest.mark.parametrize(
    ("error", "close_code"),
    [
        (MessageError("c", "m", "r"), CloseCode.BAD_MESSAGE),
        (AudioFormatError("c", "m", "r"), CloseCode.BAD_AUDIO),
        (WeightsError("c", "m", "r"), CloseCode.INTERNAL),
        (AudioKVError("c", "m", "r"), CloseCode.INTERNAL),
    ],
)
def test_each_error_has_its_close_code(error: AudioKVError, close_code: CloseCode) -> None:
    refusal = as_refusal(error)
    assert refusal.close_code == close_code
    assert (refusal.code, refusal.message, refusal.remedy) == ("c", "m", "r")


def test_a_refusal_stays_as_it_is() -> None:
    refusal = RefusalError(CloseCode.FULL, "full", "m", "r", retry_after_s=7)
    assert as_refusal(refusal) is refusal
    assert as_report(refusal).retry_after_s == 7


def test_close_codes_are_those_of_the_protocol() -> None:
    assert sorted(CloseCode) == [1000, 1001, 1003, 1008, 1009, 1011, 1013, 4400, 4401, 4408]


def test_an_internal_error_gives_nothing_away() -> None:
    refusal = internal_refusal()
    assert refusal.close_code == CloseCode.INTERNAL
    assert refusal.code == "internal"
