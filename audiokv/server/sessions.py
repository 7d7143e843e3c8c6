"""Joins what a session is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from audiokv.streaming.session import Session

if TYPE_CHECKING:
    from audiokv.models.base import Recognizer, StreamOptions
    from audiokv.streaming.audio_format import AudioFormat
    from audiokv.streaming.session_options import SessionOptions
    from audiokv.streaming.voice_activity import VoiceDetector

OpenDetector = Callable[[], "VoiceDetector"]
OpenSession = Callable[["AudioFormat", "StreamOptions"], Session]


def session_opener(
    recognizer: Recognizer, open_detector: OpenDetector, options: SessionOptions
) -> OpenSession:
    """Return a function that makes the session of one stream.

    Args:
        recognizer: The loaded model, shared by all streams.
        open_detector: Gives a voice detector with its own state.
        options: Timing, the same for all streams.
    """

    def open_session(fmt: AudioFormat, wishes: StreamOptions) -> Session:
        return Session(
            fmt=fmt,
            stream=recognizer.open_stream(wishes),
            info=recognizer.info,
            detector=open_detector(),
            options=options,
        )

    return open_session
