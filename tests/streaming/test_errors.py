from __future__ import annotations

import pytest

from audiokv.streaming.errors import (
    AudioFormatError,
    AudioKVError,
    ConfigError,
    MessageError,
    WeightsError,
)


@pytest.mark.parametrize("kind", [AudioFormatError, ConfigError, MessageError, WeightsError])
def test_every_error_is_of_the_family_and_keeps_its_parts(kind: type[AudioKVError]) -> None:
    with pytest.raises(AudioKVError) as caught:
        raise kind("bad_rate", "The rate is 7 Hz.", "Send 8,000 Hz.")
    error = caught.value
    assert (error.code, error.message, error.remedy) == (
        "bad_rate",
        "The rate is 7 Hz.",
        "Send 8,000 Hz.",
    )
    assert str(error) == "The rate is 7 Hz. Send 8,000 Hz."


def test_without_a_remedy_the_message_stands_alone() -> None:
    assert str(AudioKVError("gone", "The stream is gone.", "")) == "The stream is gone."


def test_kinds_can_be_told_apart() -> None:
    kinds = [AudioFormatError, ConfigError, MessageError, WeightsError]
    for kind in kinds:
        others = [other for other in kinds if other is not kind]
        assert not any(issubclass(kind, other) for other in others)
