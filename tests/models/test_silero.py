"""The real model on real speech and on sounds that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import samplerate
import soundfile

from audiokv.models.silero import CHUNK_SAMPLES, SileroDetector, SileroModel
from audiokv.streaming.errors import WeightsError
from audiokv.streaming.g711 import decode_mulaw, encode_mulaw
from audiokv.streaming.voice_activity import VoiceActivity

if TYPE_CHECKING:
    from pathlib import Path

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def model() -> SileroModel:
    return SileroModel.load()


@pytest.fixture(scope="module")
def sentence(speech_folder: Path) -> np.ndarray:
    """A German sentence whose words run from 0.77 to 4.54 s."""
    samples, rate_hz = soundfile.read(speech_folder / "multilingual" / "de.wav", dtype="float32")
    assert rate_hz == RATE_HZ
    return np.asarray(samples)


@pytest.fixture(scope="module")
def words(speech_folder: Path) -> list[np.ndarray]:
    """Ten isolated digits of one speaker."""
    paths = [speech_folder / "digits" / f"{digit}_george_1.wav" for digit in range(10)]
    return [samplerate.resample(soundfile.read(path)[0], 2).astype(np.float32) for path in paths]


def probabilities(detector: SileroDetector, samples: np.ndarray) -> list[float]:
    n_chunks = len(samples) // CHUNK_SAMPLES
    chunks = samples[: n_chunks * CHUNK_SAMPLES].reshape(n_chunks, CHUNK_SAMPLES)
    return [detector.probability(chunk) for chunk in chunks]


def voiced_ms(model: SileroModel, samples: np.ndarray) -> list[tuple[int, int]]:
    voice = VoiceActivity(model.open())
    edges = [change.at_ms for change in voice.push(samples) + voice.flush()]
    return list(zip(edges[::2], edges[1::2], strict=True))


def seconds(duration_s: float) -> np.ndarray:
    return np.arange(int(duration_s * RATE_HZ)) / RATE_HZ


def tone(duration_s: float, *frequencies_hz: float) -> np.ndarray:
    waves = [np.sin(2 * np.pi * hz * seconds(duration_s)) for hz in frequencies_hz]
    return np.asarray(0.2 * np.mean(waves, axis=0), np.float32)


def noise(duration_s: float, rms: float) -> np.ndarray:
    samples = np.random.default_rng(0).standard_normal(len(seconds(duration_s)))
    return (samples * rms).astype(np.float32)


def chords(duration_s: float) -> np.ndarray:
    """Two-second chords with six harmonics and vibrato over a beat of noise bursts."""
    at_s = seconds(duration_s)
    rng = np.random.default_rng(1)
    samples = 0.05 * rng.standard_normal(len(at_s)) * np.exp(-20 * (at_s % 0.5))
    vibrato = 0.003 / 5.5 * np.sin(2 * np.pi * 5.5 * at_s)
    for part, root_hz in enumerate((220.0, 174.6, 261.6, 196.0)):
        is_on = (at_s / 2).astype(int) % 4 == part
        for ratio in (1, 1.25, 1.5):
            for harmonic in range(1, 7):
                phase = 2 * np.pi * root_hz * ratio * harmonic * (at_s + vibrato)
                samples += 0.05 / harmonic * np.sin(phase) * is_on * np.exp(-(at_s % 2))
    return samples.astype(np.float32)


SOUNDS = {
    "digital silence": np.zeros(20 * RATE_HZ, np.float32),
    "faint noise": noise(20, 0.0005),
    "loud noise": noise(20, 0.1),
    "hold tone": tone(20, 425),
    "engaged tone": tone(20, 425) * (seconds(20) % 1 < 0.5),
    "ringing tone": tone(20, 440, 480) * (seconds(20) % 6 < 2),
    "keypad tones": tone(20, 770, 1_336) * (seconds(20) % 0.2 < 0.1),
    "chords and beat": chords(20),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_what_is_no_speech_is_no_voice(model: SileroModel, name: str) -> None:
    assert voiced_ms(model, SOUNDS[name].astype(np.float32)) == []


def telephone(samples: np.ndarray) -> np.ndarray:
    narrow = samplerate.resample(samples, 0.5) * 32_767
    codes = encode_mulaw(np.clip(narrow, -32_768, 32_767).astype(np.int16))
    wide = decode_mulaw(codes).astype(np.float32) / 32_768
    return np.asarray(samplerate.resample(wide, 2), np.float32)


@pytest.mark.parametrize("way", ["as recorded", "telephone", "20 dB down", "in noise"])
def test_speech_is_found_from_its_first_word_to_its_last(
    model: SileroModel, sentence: np.ndarray, way: str
) -> None:
    heard = {
        "as recorded": sentence,
        "telephone": telephone(sentence),
        "20 dB down": sentence * np.float32(0.1),
        "in noise": sentence + noise(len(sentence) / RATE_HZ, 0.02)[: len(sentence)],
    }[way]
    spans = voiced_ms(model, heard)
    assert 650 <= spans[0][0] <= 770 + 60
    assert 4_400 <= spans[-1][1] <= 4_800
    assert sum(end - begin for begin, end in spans) > 3_000


def n_heard(model: SileroModel, words: list[np.ndarray], before: np.ndarray) -> int:
    after = np.zeros(RATE_HZ // 5, np.float32)
    return sum(bool(voiced_ms(model, np.concatenate([before, word, after]))) for word in words)


def test_a_word_close_after_a_minute_of_hold_tone_is_heard(
    model: SileroModel, words: list[np.ndarray]
) -> None:
    # the gap is too short for the drop to count: the state must have stayed young in the tone
    assert n_heard(model, words, np.append(tone(62, 425), np.zeros(3_200, np.float32))) >= 9


def test_the_first_word_after_hum_is_heard(model: SileroModel, words: list[np.ndarray]) -> None:
    harmonics = [np.sin(2 * np.pi * 60 * k * seconds(3) + k) / k for k in range(1, 8)]
    hum = np.append(0.035 * np.sum(harmonics, axis=0), np.zeros(4_800)).astype(np.float32)
    assert n_heard(model, words, hum) == len(words)


def test_the_state_stays_small_in_a_hold_tone(model: SileroModel) -> None:
    detector = model.open()
    probabilities(detector, tone(120, 425))
    assert np.abs(detector._cell).max() < 200


def test_speech_is_judged_the_same_right_after_the_state_was_renewed(
    model: SileroModel, sentence: np.ndarray
) -> None:
    quiet = noise(8, 0.001)[: 250 * CHUNK_SAMPLES]
    renewed, untouched = model.open(), model.open()
    probabilities(renewed, quiet)
    probabilities(untouched, quiet[-100 * CHUNK_SAMPLES :])
    assert renewed._n_age == 64
    assert untouched._n_age == 100
    spoken = np.array(probabilities(renewed, sentence))
    np.testing.assert_allclose(spoken, probabilities(untouched, sentence), atol=0.15)


def test_the_state_is_never_renewed_within_speech(model: SileroModel, sentence: np.ndarray) -> None:
    detector = model.open()
    speech = np.tile(sentence[int(0.8 * RATE_HZ) : int(4.5 * RATE_HZ)], 4)
    probabilities(detector, speech)
    assert detector._n_age == len(speech) // CHUNK_SAMPLES


def test_streams_do_not_hear_each_other(model: SileroModel, sentence: np.ndarray) -> None:
    alone = probabilities(model.open(), sentence)
    first, second = model.open(), model.open()
    together = []
    for chunk in sentence[: len(alone) * CHUNK_SAMPLES].reshape(-1, CHUNK_SAMPLES):
        together.append(first.probability(chunk))
        second.probability(-chunk[::-1])
    assert together == alone


def test_chunk_by_chunk_gives_what_the_model_gives_for_the_whole(
    model: SileroModel, sentence: np.ndarray
) -> None:
    n_chunks = 120
    padded = np.concatenate([np.zeros(64, np.float32), sentence[: n_chunks * CHUNK_SAMPLES]])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 576)[::CHUNK_SAMPLES]
    state = np.zeros((1, 1, 128), np.float32)
    [whole] = model._session.run(["speech_probs"], {"input": windows, "h": state, "c": state})
    singly = probabilities(model.open(), sentence[: n_chunks * CHUNK_SAMPLES])
    np.testing.assert_allclose(singly, whole, atol=1e-5)


def test_reset_makes_a_detector_like_new(model: SileroModel, sentence: np.ndarray) -> None:
    detector = model.open()
    before = probabilities(detector, sentence)
    detector.reset()
    assert probabilities(detector, sentence) == before


def test_the_caller_may_reuse_its_buffer(model: SileroModel, sentence: np.ndarray) -> None:
    buffer = np.zeros(CHUNK_SAMPLES, np.float32)
    detector = model.open()
    reused = []
    for chunk in sentence[: 100 * CHUNK_SAMPLES].reshape(-1, CHUNK_SAMPLES):
        buffer[:] = chunk
        reused.append(detector.probability(buffer))
        buffer[:] = 1
    assert reused == probabilities(model.open(), sentence[: 100 * CHUNK_SAMPLES])


def test_a_chunk_of_another_length_is_refused(model: SileroModel) -> None:
    with pytest.raises(ValueError, match=r"512.*\(480,\)"):
        model.open().probability(np.zeros(480, np.float32))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"gone\.onnx") as caught:
        SileroModel.load(tmp_path / "gone.onnx")
    assert caught.value.code == "weights_missing"
    assert caught.value.remedy


def test_a_corrupt_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "bent.onnx"
    path.write_bytes(b"\x08\x07not the model")
    with pytest.raises(WeightsError, match=r"bent\.onnx") as caught:
        SileroModel.load(path)
    assert caught.value.code == "weights_corrupt"
    assert "SHA-256" in caught.value.message
