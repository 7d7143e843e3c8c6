from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import AudioFormatError
from audiokv.streaming.message_types import Limits, Ready, Start


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Start("alaw", 8_000), "encoding"),
        (Ready("s-1", "scripted", ("en",), Limits(65_536, 60, 60, 10_000)), "resume_token"),
    ],
)
def test_messages_cannot_be_changed(message: object, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(message, field, "mulaw")


def test_a_known_format_is_given_and_an_unknown_one_refused() -> None:
    assert Start("alaw", 8_000).audio_format() == AudioFormat(Encoding.ALAW, 8_000, 1)
    with pytest.raises(AudioFormatError):
        Start("mp3", 8_000).audio_format()
