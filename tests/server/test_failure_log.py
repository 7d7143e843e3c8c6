from __future__ import annotations

import logging

import pytest

from audiokv.server.failure_log import log_failure

logger = logging.getLogger(__name__)


def fail(error: Exception) -> None:
    raise error


def test_kind_and_place_are_logged_but_not_the_text(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError) as caught:
        fail(KeyError("secret words"))
    log_failure(logger, "stream s-1", caught.value)
    assert "stream s-1 failed: KeyError at test_failure_log.py:" in caplog.text
    assert "secret" not in caplog.text


def test_of_a_group_the_first_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(logger, "stream s-1", ExceptionGroup("secret", [ValueError("secret words")]))
    assert "stream s-1 failed: ValueError at nowhere" in caplog.text
    assert "secret" not in caplog.text
