"""The client of the ``wyoming`` package, unmodified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong

from tests.clients.conftest import Spoken, plain_words
from tests.server.running import running_server

if TYPE_CHECKING:
    from wyoming.event import Event

    from tests.serving import RealServer

pytestmark = pytest.mark.clients


def client_of(port: int) -> AsyncTcpClient:
    return AsyncTcpClient("127.0.0.1", port)


async def rest(client: AsyncTcpClient) -> list[Event]:
    events = []
    while (event := await client.read_event()) is not None:
        events.append(event)
    return events


@pytest.mark.weights
@pytest.mark.slow
async def test_the_client_hears_the_words(real_server: RealServer, spoken: Spoken) -> None:
    audio = spoken.pcm()
    shape = {"rate": 16_000, "width": 2, "channels": 1}
    async with client_of(real_server.own_ports["wyoming"]) as client:
        await client.write_event(Transcribe(language="en").event())
        await client.write_event(AudioStart(**shape).event())
        for at in range(0, len(audio), 2_048):
            await client.write_event(AudioChunk(audio=audio[at : at + 2_048], **shape).event())
        await client.write_event(AudioStop().event())
        events = await rest(client)
    (transcript,) = [Transcript.from_event(e) for e in events if Transcript.is_type(e.type)]
    assert plain_words(transcript.text) == spoken.words
    assert transcript.language == "en"
    chunks = [TranscriptChunk.from_event(e).text for e in events if TranscriptChunk.is_type(e.type)]
    assert "".join(chunks) == transcript.text
    assert [TranscriptStart.is_type(e.type) for e in events].count(True) == 1
    assert TranscriptStop.is_type(events[-1].type)


async def test_the_client_is_told_what_is_served() -> None:
    async with (
        running_server(wyoming_port=0) as server,
        client_of(server.other_ports["wyoming_port"]) as client,
    ):
        await client.write_event(Describe().event())
        event = await client.read_event()
        assert event is not None
        (program,) = Info.from_event(event).asr
        assert program.models[0].languages == ["de", "en"]
        assert program.supports_transcript_streaming
        await client.write_event(Ping(text="here").event())
        pong = await client.read_event()
        assert pong is not None
        assert Pong.from_event(pong).text == "here"


async def test_the_client_is_told_what_is_wrong() -> None:
    async with (
        running_server(wyoming_port=0) as server,
        client_of(server.other_ports["wyoming_port"]) as client,
    ):
        await client.write_event(AudioStart(rate=16_000, width=4, channels=1).event())
        (event,) = await rest(client)
        assert "width" in Error.from_event(event).text
