"""Every client is told the words that the native protocol has for the same audio, to the last one.

Each client is unmodified and real, as is the recognition.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from wyoming.asr import Transcribe, Transcript, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop

from tests.clients import (
    test_deepgram_client,
    test_openai_client,
    test_wyoming_client,
)
from tests.clients.spoken_words import (
    MORE_ERRORS,
    RATE_HZ,
    SPOKEN,
    TELEPHONE_HZ,
    NativeStart,
    Recording,
    load_real_recognizer,
    native_text,
    real_server,
)
from tests.clients.vosk_transcriber import transcribe
from tests.conftest import REPOSITORY
from tests.server.telephony.calling import Follower
from tests.server.telephony.sip_clients import run_baresip, run_sipp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from audiokv.models.base import Recognizer
    from audiokv.server.app import CaptionServer

    Drive = Callable[[CaptionServer, Recording, Path], Awaitable[str]]

pytestmark = [pytest.mark.clients, pytest.mark.weights, pytest.mark.slow]

TOKEN = "correct-horse"  # noqa: S105  of a test
PATIENCE_S = 300
PAUSE_MS = 700
OPENAI_HZ = 24_000
TAIL_MS = 1_500  # silence after which a turn has ended


async def hear_by_vosk(server: CaptionServer, spoken: Recording, folder: Path) -> str:
    pcm = folder / "spoken.pcm"
    await asyncio.to_thread(pcm.write_bytes, spoken.pcm())
    url = f"ws://127.0.0.1:{server.other_ports['vosk_port']}"
    parts, n_bytes = await transcribe(url, pcm)
    assert n_bytes == len(spoken.pcm())
    return " ".join(part["text"] for part in parts)


async def hear_by_deepgram(server: CaptionServer, spoken: Recording, _: Path) -> str:
    messages = await test_deepgram_client.heard(server.port, spoken.pcm(), language="en-US")
    assert messages[-1].type == "Metadata"
    assert messages[-1].duration == pytest.approx(spoken.seconds, abs=0.01)
    return test_deepgram_client.text_of(messages)


async def hear_by_openai(server: CaptionServer, spoken: Recording, _: Path) -> str:
    said = []
    async with test_openai_client.connect(server.port) as connection:
        await test_openai_client.open_session(
            connection, audio_format=test_openai_client.PCM, turn_detection=test_openai_client.VAD
        )
        tail = bytes(2 * OPENAI_HZ * TAIL_MS // 1000)
        await test_openai_client.append(connection, spoken.pcm(OPENAI_HZ) + tail)
        n_words = 0
        while n_words < len(spoken.text.split()) - 1:
            events = [event async for event in test_openai_client.until_completed(connection)]
            said.append(events[-1].transcript)
            n_words = len(" ".join(said).split())
    return " ".join(said)


async def hear_by_wyoming(server: CaptionServer, spoken: Recording, _: Path) -> str:
    audio, shape = spoken.pcm(), {"rate": RATE_HZ, "width": 2, "channels": 1}
    async with test_wyoming_client.client_of(server.other_ports["wyoming_port"]) as client:
        await client.write_event(Transcribe(language="en").event())
        await client.write_event(AudioStart(**shape).event())
        for at in range(0, len(audio), 2_048):
            await client.write_event(AudioChunk(audio=audio[at : at + 2_048], **shape).event())
        await client.write_event(AudioStop().event())
        events = await test_wyoming_client.rest(client)
    (told,) = [Transcript.from_event(e) for e in events if Transcript.is_type(e.type)]
    assert TranscriptStop.is_type(events[-1].type)
    return str(told.text)


async def hear_by_sipp(server: CaptionServer, spoken: Recording, folder: Path) -> str:
    follower = Follower(server)
    target = f"127.0.0.1:{server.other_ports['sip_port']}"
    assert await run_sipp(folder, target, spoken.at(TELEPHONE_HZ)) == 0
    (heard,) = await follower.all_done(1)
    return heard.text


async def hear_by_baresip(server: CaptionServer, spoken: Recording, folder: Path) -> str:
    follower = Follower(server)
    uri = f"sip:captions@127.0.0.1:{server.other_ports['sip_port']}"
    await run_baresip(folder, uri, spoken.at(TELEPHONE_HZ))
    (heard,) = await follower.all_done(1)
    return heard.text


async def hear_by_pipecat(
    service: str, server: CaptionServer, spoken: Recording, folder: Path
) -> str:
    pcm = folder / "spoken.pcm"
    await asyncio.to_thread(pcm.write_bytes, spoken.pcm())
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.clients.pipecat_caller", service),
        *(str(server.port), TOKEN, str(pcm), str(len(spoken.text.split()))),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await program.communicate()
    notes = [json.loads(line) for line in printed.splitlines()]
    assert program.returncode == 0
    assert notes[-1]["kind"] == "end"
    assert [note for note in notes if note["kind"] == "error"] == []
    assert any(note["kind"] == "interim" for note in notes)
    return " ".join(note["text"] for note in notes if note["kind"] == "final")


async def hear_by_pipecat_s_deepgram(server: CaptionServer, spoken: Recording, folder: Path) -> str:
    return await hear_by_pipecat("deepgram", server, spoken, folder)


async def hear_by_pipecat_s_openai(server: CaptionServer, spoken: Recording, folder: Path) -> str:
    return await hear_by_pipecat("openai", server, spoken, folder)


@dataclass(frozen=True, slots=True)
class Client:
    """A client, and what the native protocol is told of the same audio."""

    drive: Drive
    told: NativeStart = NativeStart()  # noqa: RUF009  frozen

    def audio(self, spoken: Recording) -> bytes:
        """Return the audio that the client sends."""
        laws = {"mulaw": spoken.mulaw, "alaw": spoken.alaw}
        law = laws.get(self.told.encoding)
        return law() if law is not None else spoken.pcm(self.told.rate_hz)


CLIENTS = {
    "vosk": Client(hear_by_vosk, NativeStart(language="auto")),
    "deepgram-sdk": Client(hear_by_deepgram),
    "openai": Client(hear_by_openai, NativeStart(rate_hz=OPENAI_HZ)),
    "wyoming": Client(hear_by_wyoming),
    "sipp": Client(hear_by_sipp, NativeStart("mulaw", TELEPHONE_HZ, "auto")),
    "baresip": Client(hear_by_baresip, NativeStart("alaw", TELEPHONE_HZ, "auto")),
    "pipecat, Deepgram": Client(hear_by_pipecat_s_deepgram),
    "pipecat, OpenAI": Client(hear_by_pipecat_s_openai, NativeStart(rate_hz=OPENAI_HZ)),
}


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return load_real_recognizer()


@pytest.fixture(scope="module")
def spoken_words(speech_folder: Path) -> Recording:
    return Recording.of(speech_folder, SPOKEN, pause_ms=PAUSE_MS)


@pytest.fixture(scope="module")
def native_texts() -> dict[NativeStart, str]:
    """What the native protocol says of the recording, by what it was told; filled as needed."""
    return {}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_is_told_the_words_of_the_native_protocol(
    name: str,
    recognizer: Recognizer,
    spoken_words: Recording,
    native_texts: dict[NativeStart, str],
    tmp_path: Path,
) -> None:
    client = CLIENTS[name]
    ports = {"vosk_port": 0, "wyoming_port": 0, "sip_port": 0}
    async with asyncio.timeout(PATIENCE_S), real_server(recognizer, **ports) as server:
        if client.told not in native_texts:
            audio = client.audio(spoken_words)
            native_texts[client.told] = await native_text(server, audio, client.told)
        native = native_texts[client.told]
        heard = await client.drive(server, spoken_words, tmp_path)
    assert spoken_words.errors(heard).rate <= spoken_words.errors(native).rate + MORE_ERRORS, (
        heard,
        native,
    )
    assert spoken_words.has_last_word(heard), heard
