"""A server with real weights for third-party clients, and what is spoken to it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import samplerate
import soundfile

from audiokv.streaming.g711 import encode_mulaw
from tests.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.serving import RealServer

SPOKEN = "librivox/austen-0930.wav"
OWN_PORTS = ("vosk", "whisperlive", "wyoming")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording and its words.

    Attributes:
        samples: Mono, 16 kHz, between -1 and 1.
        words: What is said, in lower case, without punctuation.
    """

    samples: np.ndarray[tuple[int], np.dtype[np.float32]]
    words: list[str]

    def pcm(self, rate_hz: int = 16_000) -> bytes:
        """Return 16-bit samples at a rate."""
        resampled = samplerate.resample(self.samples, rate_hz / 16_000, "sinc_best")
        return bytes((np.clip(resampled, -1, 1) * 32_767).astype("<i2").tobytes())

    def mulaw(self) -> bytes:
        """Return G.711 mu-law at 8 kHz."""
        return bytes(encode_mulaw(np.frombuffer(self.pcm(8_000), "<i2")))


@pytest.fixture(scope="session")
def spoken(speech_folder: Path) -> Spoken:
    samples, rate_hz = soundfile.read(speech_folder / SPOKEN, dtype="float32")
    assert rate_hz == 16_000
    lines = (speech_folder / "manifest.jsonl").read_text().splitlines()
    text = next(e["text"] for e in map(json.loads, lines) if e["file"] == SPOKEN)
    return Spoken(samples, plain_words(text))


@pytest.fixture(scope="session")
def real_server() -> Iterator[RealServer]:
    """A server with its default model."""
    with serving(own_ports=OWN_PORTS) as running:
        yield running


def plain_words(text: str) -> list[str]:
    """Return words without punctuation and capitals."""
    return "".join(c for c in text.lower() if c.isalnum() or c.isspace()).split()
