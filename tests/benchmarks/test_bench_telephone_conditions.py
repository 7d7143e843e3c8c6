from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.recordings import Recording
from benchmarks.telephone_conditions import (
    CONDITIONS,
    KEYS,
    LEAD_MS,
    MULAW,
    TAIL_MS,
    WIDE,
    Utterance,
    amplified,
    key_tones,
    suppressed,
    utterances,
)
from benchmarks.telephone_line import Leg

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def spoken(tmp_path: Path) -> list[Utterance]:
    recordings = []
    for name, hz in (("low", 300), ("high", 900)):
        tone = 0.3 * np.sin(2 * np.pi * hz * np.arange(8_000) / 16_000)
        path = tmp_path / f"{name}.wav"
        soundfile.write(path, tone, 16_000)
        recordings.append(Recording(name, path, "en", name))
    return utterances(recordings)


def audio(utterance: Utterance, condition: str) -> np.ndarray:
    joined = b"".join(piece.audio for piece in CONDITIONS[condition](utterance))
    return np.frombuffer(joined, "<i2").astype(np.float32) / 32_768


def rms_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(np.square(samples, dtype=float)) + 1e-12))


def at_hz(samples: np.ndarray, hz: float) -> float:
    """Return the level of one frequency in dB."""
    turns = np.exp(-2j * np.pi * hz * np.arange(len(samples)) / 16_000)
    return float(20 * np.log10(2 * np.abs((samples * turns).mean()) + 1e-12))


def test_an_utterance_knows_where_its_speech_lies(spoken: list[Utterance]) -> None:
    first, second = spoken
    assert first.speech_ms == (LEAD_MS, LEAD_MS + 500)
    assert len(first.samples) == 16 * (LEAD_MS + 500 + TAIL_MS) == len(first.other)
    assert first.other[:8_000].tolist() == second.recording.samples().tolist()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_condition_brings_the_whole_call(spoken: list[Utterance], condition: str) -> None:
    for utterance in spoken:
        whole_ms = len(utterance.samples) / 16
        if condition == "mu-law, silence suppressed":
            whole_ms -= TAIL_MS - 200  # what comes behind the speech is never sent
        length_ms = len(audio(utterance, condition)) / 16
        assert abs(length_ms - whole_ms) <= 100  # the last packets may be lost


def speech(samples: np.ndarray) -> np.ndarray:
    return samples[16 * (LEAD_MS + 100) : 16 * (LEAD_MS + 400)]


def test_what_the_conditions_do(spoken: list[Utterance]) -> None:
    utterance = spoken[0]
    plain = audio(utterance, MULAW)
    assert rms_db(audio(utterance, WIDE)) == pytest.approx(rms_db(plain), abs=0.2)
    soft = audio(utterance, "mu-law, 30 dB softer")
    assert rms_db(speech(plain)) - rms_db(speech(soft)) == pytest.approx(30, abs=0.5)
    lead = slice(0, 16 * 1_000)
    assert rms_db(audio(utterance, "mu-law, noise at -50 dBFS")[lead]) == pytest.approx(-53, abs=2)
    echo = audio(utterance, "mu-law, echo at -25 dB")
    assert at_hz(speech(echo), 900) - at_hz(speech(plain), 300) == pytest.approx(-25, abs=1)
    keys = audio(utterance, KEYS)
    assert rms_db(keys[16 * 100 : 16 * 1_000]) > -25
    assert rms_db(keys[-16 * 1_400 : -16 * 600]) > -25
    assert rms_db(speech(keys)) == pytest.approx(rms_db(speech(plain)), abs=0.1)
    lossy = audio(utterance, "mu-law, 5 % lost, 60 ms jitter")
    assert (lossy == 0).sum() > (plain == 0).sum() + 16 * 20


def test_keys_sound_as_their_standard_says() -> None:
    tones = key_tones("5#")
    assert len(tones) == 2 * 16 * 200
    first, second = tones[:1_600], tones[3_200:4_800]
    assert min(at_hz(first, hz) for hz in (770, 1_336)) > -15
    assert min(at_hz(second, hz) for hz in (941, 1_477)) > -15
    assert at_hz(first, 941) < -30
    assert not tones[1_600:3_200].any()


def test_gain_is_in_decibels() -> None:
    assert amplified(np.array([1.0], np.float32), -20.0)[0] == pytest.approx(0.1)


def test_suppressed_silence_is_one_packet_of_comfort_noise(spoken: list[Utterance]) -> None:
    samples = spoken[0].samples
    sent = Leg().send(samples)
    kept = suppressed(sent, samples)
    types = [one.data[1] for one in kept]
    assert types.count(13) == 2  # before the speech, and behind it
    assert len(kept) < 0.5 * len(sent)
    loud = [one for one in sent if LEAD_MS + 20 <= one.at_ms <= LEAD_MS + 500]
    assert {one.data for one in loud} <= {one.data for one in kept}
    (noise,) = {one.data[12:] for one in kept if one.data[1] == 13}
    assert noise == b"\x32"
