from __future__ import annotations

from audiokv.models.base import StreamOptions
from audiokv.server.sessions import session_opener
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.session_options import SessionOptions
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer, ScriptedStream


def test_each_session_has_its_own_stream_and_detector() -> None:
    detectors: list[LoudnessDetector] = []

    def open_detector() -> LoudnessDetector:
        detectors.append(LoudnessDetector())
        return detectors[-1]

    open_session = session_opener(ScriptedRecognizer(), open_detector, SessionOptions())
    wishes = StreamOptions(language="de", prompt="AudioKV")
    first = open_session(AudioFormat(), wishes)
    second = open_session(AudioFormat(), StreamOptions())
    assert isinstance(first.stream, ScriptedStream)
    assert first.stream.options is wishes
    assert first.stream is not second.stream
    assert len(detectors) == 2
