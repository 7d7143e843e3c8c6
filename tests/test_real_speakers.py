"""Who said what, with real weights: the two legs of a call, and voices on one channel."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.models.base import StreamOptions
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.models.speaker_encoder import SpeakerEncoder
from audiokv.server.sessions import session_opener, speaker_opener
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.session_options import SessionOptions
from benchmarks.measures import errors

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.models.base import Recognizer
    from audiokv.streaming.captions import Event
    from audiokv.streaming.channels import ChannelGroup

pytestmark = [pytest.mark.weights, pytest.mark.slow]

JOYCE = ("librispeech/1089-134686-0000.flac", "librispeech/1089-134691-0001.flac")
AUSTEN = ("librivox/austen-0870.wav", "librivox/austen-0890.wav")
GAP_MS = 900


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return load_recognizer("whisper-base")


@pytest.fixture(scope="module")
def detectors() -> SileroModel:
    return SileroModel.load()


def recording(folder: Path, file: str) -> np.ndarray:
    samples, rate = soundfile.read(folder / file, dtype="int16")
    assert (rate, samples.ndim) == (16_000, 1)
    spoken: np.ndarray = samples
    return spoken


def reference(folder: Path, file: str) -> str:
    entries = map(json.loads, (folder / "manifest.jsonl").read_text("utf-8").splitlines())
    return str(next(entry["text"] for entry in entries if entry["file"] == file))


def finals(group: ChannelGroup, recognizer: Recognizer, audio: bytes) -> list[Caption]:
    events: list[Event] = []
    for start in range(0, len(audio), 20_001):  # splits samples too
        group.push(audio[start : start + 20_001])
        events += group.prepare()
        while group.is_step_due:
            events += group.apply(recognizer.decode(group.due))
            events += group.prepare()
            group.rest()
        if start + 20_001 >= len(audio) and not group.is_done:
            group.stop()
            events += group.prepare()
    while group.is_step_due:
        events += group.apply(recognizer.decode(group.due))
        events += group.prepare()
    assert group.is_done
    return [e for e in events if isinstance(e, Caption) and e.is_final]


def test_both_legs_of_a_call_are_captioned_apart(
    recognizer: Recognizer, detectors: SileroModel, speech_folder: Path
) -> None:
    legs = [recording(speech_folder, file) for file in (JOYCE[0], AUSTEN[0])]
    n_samples = max(map(len, legs))
    stereo = np.stack([np.pad(leg, (0, n_samples - len(leg))) for leg in legs], axis=1)
    open_session = session_opener(recognizer, detectors.open, SessionOptions())
    fmt = AudioFormat(Encoding.PCM_S16LE, 16_000, 2)
    group = open_session(fmt, StreamOptions(language="en"), ("Joyce", "Austen"))
    said = finals(group, recognizer, stereo.astype("<i2").tobytes())
    assert {caption.speaker for caption in said} == {"Joyce", "Austen"}
    for label, file in (("Joyce", JOYCE[0]), ("Austen", AUSTEN[0])):
        text = " ".join(caption.text for caption in said if caption.speaker == label)
        assert errors(reference(speech_folder, file), text, "en").rate <= 0.1, text


def test_two_voices_on_one_channel_are_told_apart(
    recognizer: Recognizer, detectors: SileroModel, speech_folder: Path
) -> None:
    turns = [("Joyce", JOYCE[1]), ("Austen", AUSTEN[0]), ("Joyce", JOYCE[0]), ("Austen", AUSTEN[1])]
    pause = np.zeros(16 * GAP_MS, np.int16)
    parts, spans, at_ms = [], [], 0
    for who, file in turns:
        samples = recording(speech_folder, file)
        parts += [samples, pause]
        spans.append((who, at_ms, at_ms + len(samples) // 16))
        at_ms += len(samples) // 16 + GAP_MS
    open_session = session_opener(
        recognizer,
        detectors.open,
        SessionOptions(),
        speaker_opener(SpeakerEncoder.load().embed),
    )
    group = open_session(AudioFormat(), StreamOptions(language="en"), ())
    said = finals(group, recognizer, np.concatenate(parts).astype("<i2").tobytes())
    heard: dict[str, set[str | None]] = {"Joyce": set(), "Austen": set()}
    for caption in said:
        middle_ms = (caption.start_ms + caption.end_ms) // 2
        who = next(who for who, start, end in spans if start <= middle_ms <= end)
        heard[who].add(caption.speaker)
    assert heard == {"Joyce": {"speaker 1"}, "Austen": {"speaker 2"}}
