"""Recordings as clients send them, a server with real recognition, and the errors of what it says.

What a client is told is judged by what the native protocol says about the same audio: the words of
both are compared with what was spoken.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
from websockets.asyncio.client import connect

from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.streaming.g711 import encode_alaw, encode_mulaw
from audiokv.streaming.resampler import StreamResampler
from benchmarks.measures import Errors, errors, scored_units

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from audiokv.models.base import Recognizer
    from audiokv.server.app import CaptionServer

RATE_HZ = 16_000
TELEPHONE_HZ = 8_000
SPOKEN = ("librispeech/1089-134691-0001.flac", "librivox/austen-0930.wav")  # 25 words
MORE_ERRORS = 0.02  # what a client may lose against the native protocol, as a share of the words
_PEAK = 32_767
_PACKET_MS = 20


@dataclass(frozen=True, slots=True)
class Recording:
    """Something spoken, in English.

    Attributes:
        samples: Mono, 16 kHz, 16 bit.
        text: Its words.
    """

    samples: NDArray[np.int16]
    text: str

    @classmethod
    def of(cls, folder: Path, names: Sequence[str], *, pause_ms: int) -> Recording:
        """Join recordings, each after a pause, and a pause at the end.

        Args:
            folder: The recordings with their manifest.
            names: Files of 16 kHz.
            pause_ms: Length of each pause.
        """
        lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
        texts = {entry["file"]: entry["text"] for entry in map(json.loads, lines)}
        pause = np.zeros(pause_ms * RATE_HZ // 1000, np.int16)
        parts = [pause]
        for name in names:
            spoken, rate_hz = soundfile.read(folder / name, dtype="int16")
            assert rate_hz == RATE_HZ
            parts += [spoken, pause]
        return cls(np.concatenate(parts), " ".join(texts[name] for name in names))

    @property
    def seconds(self) -> float:
        """Length."""
        return len(self.samples) / RATE_HZ

    def at(self, rate_hz: int) -> NDArray[np.int16]:
        """Return the samples at another rate."""
        if rate_hz == RATE_HZ:
            return self.samples
        resampled = StreamResampler(RATE_HZ, rate_hz).push(self.samples.astype(np.float32))
        return np.clip(np.rint(resampled), -_PEAK - 1, _PEAK).astype(np.int16)

    def pcm(self, rate_hz: int = RATE_HZ) -> bytes:
        """Return 16-bit samples at a rate."""
        return self.at(rate_hz).astype("<i2").tobytes()

    def mulaw(self) -> bytes:
        """Return what a telephone makes of it: mu-law at 8 kHz."""
        return bytes(encode_mulaw(self.at(TELEPHONE_HZ)))

    def alaw(self) -> bytes:
        """Return what a telephone makes of it: A-law at 8 kHz."""
        return bytes(encode_alaw(self.at(TELEPHONE_HZ)))

    def errors(self, heard: str) -> Errors:
        """Count the errors of what was heard."""
        return errors(self.text, heard, "en")

    def has_last_word(self, heard: str) -> bool:
        """Whether what was heard ends as the recording does."""
        return scored_units(heard, "en")[-1:] == scored_units(self.text, "en")[-1:]


def load_real_recognizer() -> Recognizer:
    """Return the default model."""
    return load_recognizer("whisper-base")


@asynccontextmanager
async def real_server(recognizer: Recognizer, **settings: Any) -> AsyncIterator[CaptionServer]:
    """Run a server with real recognition on free ports."""
    config = ServerConfig(port=0, **settings)
    async with open_server(
        config, recognizer=recognizer, open_detector=SileroModel.load().open, pages={}
    ) as server:
        yield server


@dataclass(frozen=True, slots=True)
class NativeStart:
    """What the native protocol is told of a recording."""

    encoding: str = "pcm_s16le"
    rate_hz: int = RATE_HZ
    language: str = "en"


async def native_text(
    server: CaptionServer, audio: bytes, told: NativeStart = NativeStart()
) -> str:
    """Return the final text of a stream in the native protocol."""
    url = server.page_url.replace("http", "ws", 1) + "v1/stream"
    start = {
        "type": "start",
        "encoding": told.encoding,
        "sample_rate": told.rate_hz,
        "language": told.language,
    }
    sample_bytes = 2 if told.encoding == "pcm_s16le" else 1
    n_bytes = told.rate_hz * sample_bytes * _PACKET_MS // 1000
    async with connect(url, compression=None) as stream:
        await stream.send(json.dumps(start))
        for at in range(0, len(audio), n_bytes):
            await stream.send(audio[at : at + n_bytes])
        await stream.send('{"type":"stop"}')
        said = [json.loads(message) async for message in stream]
    assert said[-1]["type"] == "done", said[-1]
    return " ".join(m["text"] for m in said if m["type"] == "caption" and m["final"])
