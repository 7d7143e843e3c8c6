"""Real spoken digits through a session and the small checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import jiwer
import numpy as np
import pytest
import soundfile

from audiokv.models.base import StreamOptions
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from audiokv.models.base import Recognizer

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
RATE_HZ = 8_000
N_TEST_TAKES = 5  # the first takes of each digit and speaker were kept from training


@dataclass(frozen=True)
class Spoken:
    """A string of digits and its sound."""

    words: list[str]
    samples: NDArray[np.int16]
    edges_ms: list[tuple[float, float]]


def speak(folder: Path, n_digits: int, seed: int) -> Spoken:
    """Digits of one speaker, with short pauses between them and silence around."""
    generator = np.random.default_rng(seed)
    speaker = SPEAKERS[seed % len(SPEAKERS)]
    parts = [np.zeros(RATE_HZ // 2, np.int16)]
    words, edges_ms = [], []
    for digit in generator.integers(0, 10, n_digits):
        take = generator.integers(N_TEST_TAKES)
        samples, rate_hz = soundfile.read(
            folder / "digits" / f"{digit}_{speaker}_{take}.wav", dtype="int16"
        )
        assert rate_hz == RATE_HZ
        start = sum(map(len, parts))
        words.append(WORDS[digit])
        edges_ms.append((start / 8, (start + len(samples)) / 8))
        parts += [samples, np.zeros(int(generator.uniform(0.06, 0.2) * RATE_HZ), np.int16)]
    parts.append(np.zeros(RATE_HZ, np.int16))
    return Spoken(words, np.concatenate(parts), edges_ms)


def captions(recognizer: Recognizer, samples: NDArray[np.int16]) -> list[Caption]:
    """What a live stream says, in pushes of 100 ms."""
    session = Session(
        fmt=AudioFormat(Encoding.PCM_S16LE, RATE_HZ),
        stream=recognizer.open_stream(StreamOptions("en")),
        info=recognizer.info,
        detector=SileroModel.load().open(),
    )
    said: list[Caption] = []

    def work() -> None:
        events = session.prepare()
        while session.is_step_due:
            (hypothesis,) = recognizer.decode([session.stream])
            events += session.apply(hypothesis)
            session.rest()
            events += session.prepare()
        said.extend(event for event in events if isinstance(event, Caption))

    for part in np.split(samples, range(RATE_HZ // 10, len(samples), RATE_HZ // 10)):
        session.push(part.tobytes())
        work()
    session.stop()
    work()
    return said


@pytest.fixture(scope="module")
def digits_model(repository: Path) -> str:
    return str(repository / "tests" / "models" / "gemma3n-digits")


@pytest.mark.weights
@pytest.mark.parametrize("cache", [CacheOptions(), CacheOptions(64, "audiokv")])
def test_a_live_stream_of_digits_is_captioned(
    digits_model: str, speech_folder: Path, cache: CacheOptions
) -> None:
    recognizer = load_recognizer(digits_model, cache)
    spoken = [speak(speech_folder, n_digits, seed) for seed, n_digits in enumerate([3, 5, 8, 6])]
    streamed = []
    for string in spoken:
        said = captions(recognizer, string.samples)
        finals = [caption for caption in said if caption.is_final]
        streamed.append(" ".join(caption.text for caption in finals) or "-")
        committed = [[w for w in c.words if w.is_final] for c in said if c.segment == 0]
        for earlier, later in pairwise(committed):
            assert later[: len(earlier)] == earlier
    references = [" ".join(string.words) for string in spoken]
    assert jiwer.wer(references, streamed) <= 0.1, (references, streamed)
