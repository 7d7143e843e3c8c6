"""A server with real weights for third-party clients, and what is spoken to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import samplerate
import soundfile

from audiokv.streaming.g711 import encode_mulaw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPOKEN = "librivox/austen-0930.wav"
OWN_PORTS = ("vosk", "whisperlive", "wyoming")


@dataclass(frozen=True, slots=True)
class RealServer:
    """``audiokv serve`` with its default model.

    Attributes:
        port: The main port.
        own_ports: Ports of one protocol each, by its name.
    """

    port: int
    own_ports: dict[str, int]


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
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AUDIOKV_")}
    environment |= {k: v for k, v in os.environ.items() if k == "AUDIOKV_CACHE"}
    flags = [
        flag
        for name in ("port", *(f"{own}-port" for own in OWN_PORTS))
        for flag in (f"--{name}", "0")
    ]
    with subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "audiokv", "serve", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        ports: dict[str, int] = {}
        for line in process.stdout:
            if found := re.search(r"http://.*:(\d+)/", line):
                ports["main"] = int(found[1])
            elif found := re.match(r"(\w+) clients at .*:(\d+)", line):
                ports[found[1]] = int(found[2])
            if len(ports) == 1 + len(OWN_PORTS):
                yield RealServer(ports.pop("main"), ports)
                break
        else:
            pytest.fail("the server ended before it listened")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode in {0, 130}


def plain_words(text: str) -> list[str]:
    """Return words without punctuation and capitals."""
    return "".join(c for c in text.lower() if c.isalnum() or c.isspace()).split()
