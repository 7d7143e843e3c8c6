"""Calls with real recognition: the words of a call are those of the same audio sent natively."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect

from audiokv.streaming.g711 import encode_mulaw
from audiokv.streaming.resampler import StreamResampler
from benchmarks.measures import Errors, errors
from tests.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.weights, pytest.mark.slow]

SPOKEN = ("librispeech/1089-134691-0001.flac", "librispeech/1089-134686-0000.flac")
RATE_HZ = 8_000
PACKET_BYTES = 160
TAIL_MS = 400


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of its sockets."""
    with serving() as running:
        yield running.sockets


def telephone_audio(path: Path) -> bytes:
    """Return a recording as a telephone brings it: mu-law, 8 kHz."""
    spoken, rate_hz = soundfile.read(path, dtype="float32")
    narrow = StreamResampler(rate_hz, RATE_HZ).push(spoken)
    tail = np.zeros(RATE_HZ * TAIL_MS // 1000, np.float32)
    samples = np.concatenate([narrow, tail]) * 32_767
    return encode_mulaw(np.clip(samples, -32_768, 32_767).astype(np.int16))


async def words_of_native(server: str, audio: bytes) -> str:
    start = {"type": "start", "encoding": "mulaw", "sample_rate": RATE_HZ, "language": "en"}
    async with connect(f"{server}v1/stream", compression=None) as stream:
        await stream.send(json.dumps(start))
        for at in range(0, len(audio), PACKET_BYTES):
            await stream.send(audio[at : at + PACKET_BYTES])
        await stream.send('{"type":"stop"}')
        said = [json.loads(message) async for message in stream]
    return " ".join(m["text"] for m in said if m["type"] == "caption" and m["final"])


async def words_of_call(server: str, audio: bytes) -> str:
    start = {
        "type": "start",
        "language": "en-US",
        "encoding": "MULAW",
        "sampleRateHz": RATE_HZ,
        "interimResults": False,
    }
    async with connect(f"{server}v1/call/jambonz-stt", compression=None) as call:
        await call.send(json.dumps(start))
        for at in range(0, len(audio), PACKET_BYTES):
            await call.send(audio[at : at + PACKET_BYTES])
        await call.send('{"type":"stop"}')
        said = [json.loads(message) async for message in call]
        assert call.close_code == 1000
    return " ".join(m["alternatives"][0]["transcript"] for m in said)


async def test_a_call_has_the_words_of_the_native_protocol(
    server: str, speech_folder: Path
) -> None:
    manifest = (speech_folder / "manifest.jsonl").read_text("utf-8").splitlines()
    texts = {entry["file"]: entry["text"] for entry in map(json.loads, manifest)}
    native = call = Errors(0, 0, 0, 0)
    for name in SPOKEN:
        audio = telephone_audio(speech_folder / name)
        native += errors(texts[name], await words_of_native(server, audio), "en")
        call += errors(texts[name], await words_of_call(server, audio), "en")
    assert call.rate <= native.rate + 0.02
    assert call.rate <= 0.1
