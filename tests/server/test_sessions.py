from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import StreamOptions
from audiokv.server.sessions import session_opener, speaker_opener
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.session_options import SessionOptions
from audiokv.streaming.speakers import FixedSpeaker, SpeakerTracker
from tests.server.doubles import (
    NEVER_MERGE_MS,
    LoudnessDetector,
    ScriptedRecognizer,
    ScriptedStream,
    captions_in,
    speech,
)

if TYPE_CHECKING:
    from audiokv.models.base import FloatArray
    from audiokv.streaming.captions import Event
    from audiokv.streaming.channels import ChannelGroup

STEREO = AudioFormat(Encoding.PCM_S16LE, 16_000, 2)


def stereo(left: bytes, right: bytes) -> bytes:
    columns = [np.frombuffer(side, "<i2") for side in (left, right)]
    return np.stack(columns, axis=1).tobytes()


def said(group: ChannelGroup, audio: bytes) -> list[Event]:
    recognizer = ScriptedRecognizer()
    group.push(audio)
    group.stop()
    events = group.prepare()
    while group.is_step_due:
        events += group.apply(recognizer.decode(group.due))
        events += group.prepare()
        group.rest()
    assert group.is_done
    return events


def test_each_session_has_its_own_stream_and_detector() -> None:
    detectors: list[LoudnessDetector] = []

    def open_detector() -> LoudnessDetector:
        detectors.append(LoudnessDetector())
        return detectors[-1]

    open_session = session_opener(ScriptedRecognizer(), open_detector, SessionOptions())
    wishes = StreamOptions(language="de", prompt="AudioKV")
    (first,) = open_session(AudioFormat(), wishes, ()).sessions
    left, right = open_session(STEREO, StreamOptions(), ("a", "b")).sessions
    assert isinstance(first.stream, ScriptedStream)
    assert first.stream.options is wishes
    assert len({id(session.stream) for session in (first, left, right)}) == 3
    assert len(detectors) == 3


def test_labelled_channels_are_heard_apart_and_others_averaged() -> None:
    options = SessionOptions(max_lag_ms=NEVER_MERGE_MS)
    open_session = session_opener(ScriptedRecognizer(), LoudnessDetector, options)
    sides = [speech(seed, seconds=2) for seed in (1, 2)]
    mono = [captions_in(said(open_session(AudioFormat(), StreamOptions(), ()), s)) for s in sides]
    group = open_session(STEREO, StreamOptions(), ("agent", "caller"))
    apart = captions_in(said(group, stereo(*sides)))
    for label, alone in zip(("agent", "caller"), mono, strict=True):
        assert [c.text for c in apart if c.speaker == label] == [c.text for c in alone]
    averaged = captions_in(said(open_session(STEREO, StreamOptions(), ()), stereo(*sides)))
    assert {c.speaker for c in averaged} == {None}
    assert {c.text for c in averaged}.isdisjoint({c.text for c in apart})
    both = open_session(STEREO, StreamOptions(), ())
    same = captions_in(said(both, stereo(sides[0], sides[0])))
    assert [c.text for c in same] == [c.text for c in mono[0]]


def test_one_channel_may_have_a_label_too() -> None:
    open_session = session_opener(ScriptedRecognizer(), LoudnessDetector, SessionOptions())
    group = open_session(AudioFormat(), StreamOptions(), ("Ada",))
    assert {c.speaker for c in captions_in(said(group, speech(1, seconds=2)))} == {"Ada"}


def test_voices_are_told_apart_where_no_labels_are_given() -> None:
    def embed(samples: FloatArray) -> FloatArray:
        is_loud = float(np.abs(samples).mean()) > 0.06
        return np.array([is_loud, not is_loud], np.float32)

    open_session = session_opener(
        ScriptedRecognizer(), LoudnessDetector, SessionOptions(), speaker_opener(embed)
    )
    loud = speech(1, seconds=2.6, pause_every_s=2)
    soft = (np.frombuffer(loud, "<i2") // 4).astype("<i2").tobytes()
    group = open_session(AudioFormat(), StreamOptions(), ())
    finals = [c for c in captions_in(said(group, loud + soft + loud)) if c.is_final]
    assert [c.speaker for c in finals] == ["speaker 1", "speaker 2", "speaker 1"]
    labelled = open_session(AudioFormat(), StreamOptions(), ("Ada",))
    assert {c.speaker for c in captions_in(said(labelled, loud + soft))} == {"Ada"}


def test_each_stream_has_speakers_of_its_own() -> None:
    opener = speaker_opener(lambda samples: samples[:2])
    first, second = opener(), opener()
    assert isinstance(first, SpeakerTracker)
    assert first is not second
    assert isinstance(speaker_opener(None)(), FixedSpeaker)
