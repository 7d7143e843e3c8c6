"""The ``openai`` package's realtime client, unmodified."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI

from tests.clients.conftest import Spoken, plain_words
from tests.server.doubles import speech
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.serving import RealServer

pytestmark = pytest.mark.clients

TOKEN = "correct-horse"  # noqa: S105  of a test
SILENCE_MS = 700


def client_of(port: int) -> AsyncOpenAI:
    return AsyncOpenAI(
        api_key=TOKEN,
        base_url=f"http://127.0.0.1:{port}/v1",
        websocket_base_url=f"ws://127.0.0.1:{port}/v1",
    )


def session(audio_format: dict[str, Any], turn_detection: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "type": "transcription",
        "audio": {
            "input": {
                "format": audio_format,
                "transcription": {"model": "gpt-4o-transcribe", "language": "en", "prompt": ""},
                "turn_detection": turn_detection,
                "noise_reduction": None,
            }
        },
    }


PCM = {"type": "audio/pcm", "rate": 24_000}
VAD = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": SILENCE_MS}


async def append(connection: Any, audio: bytes, *, n_bytes: int = 4_800) -> None:
    for at in range(0, len(audio), n_bytes):
        encoded = base64.b64encode(audio[at : at + n_bytes]).decode()
        await connection.input_audio_buffer.append(audio=encoded)


async def until_completed(connection: Any) -> AsyncIterator[Any]:
    async for event in connection:
        yield event
        assert event.type != "error", event
        if event.type == "conversation.item.input_audio_transcription.completed":
            return


async def open_session(connection: Any, **settings: Any) -> None:
    created = await connection.recv()
    assert created.type == "session.created"
    assert created.session.type == "transcription"
    await connection.session.update(session=session(**settings))
    updated = await connection.recv()
    assert updated.type == "session.updated", updated


def connect(port: int) -> Any:
    return client_of(port).realtime.connect(extra_query={"intent": "transcription"})


@pytest.mark.weights
@pytest.mark.slow
async def test_the_sdk_hears_the_words_of_a_turn(real_server: RealServer, spoken: Spoken) -> None:
    async with connect(real_server.port) as connection:
        await open_session(connection, audio_format=PCM, turn_detection=VAD)
        await append(connection, spoken.pcm(24_000) + bytes(48 * 1_500))
        events = [event async for event in until_completed(connection)]
    assert plain_words(events[-1].transcript) == spoken.words
    deltas = [e.delta for e in events if e.type.endswith("transcription.delta")]
    assert "".join(deltas) == events[-1].transcript
    kinds = [event.type for event in events if not event.type.endswith(".delta")]
    assert kinds == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
    ]
    assert events[-1].usage.seconds == pytest.approx(3, abs=1)


@pytest.mark.weights
@pytest.mark.slow
async def test_the_sdk_hears_the_words_it_commits(real_server: RealServer, spoken: Spoken) -> None:
    async with connect(real_server.port) as connection:
        await open_session(connection, audio_format={"type": "audio/pcmu"}, turn_detection=None)
        await append(connection, spoken.mulaw(), n_bytes=800)
        await connection.input_audio_buffer.commit()
        events = [event async for event in until_completed(connection)]
    assert plain_words(events[-1].transcript) == spoken.words
    assert "input_audio_buffer.speech_started" not in [event.type for event in events]


async def test_an_error_names_its_event_and_the_session_goes_on() -> None:
    async with running_server(token=TOKEN) as server, connect(server.port) as connection:
        assert (await connection.recv()).type == "session.created"
        await connection.input_audio_buffer.commit(event_id="mine")
        error = (await connection.recv()).error
        assert (error.code, error.event_id) == ("input_audio_buffer_commit_empty", "mine")
        await connection.response.create()
        assert (await connection.recv()).error.code == "unknown_type"
        await connection.session.update(session=session(PCM, None))
        assert (await connection.recv()).type == "session.updated"
        await append(connection, speech(1, seconds=1))
        await connection.input_audio_buffer.commit()
        events = [event async for event in until_completed(connection)]
        assert events[-1].transcript


async def test_a_setting_that_is_not_supported_is_named_and_nothing_is_changed() -> None:
    async with running_server(token=TOKEN) as server, connect(server.port) as connection:
        assert (await connection.recv()).type == "session.created"
        wanted = session(PCM, None)
        wanted["audio"]["input"]["noise_reduction"] = {"type": "near_field"}
        await connection.session.update(session=wanted)
        error = (await connection.recv()).error
        assert error.code == "unsupported_option"
        assert "noise_reduction" in error.message
        await append(connection, speech(1, seconds=1))
        await connection.input_audio_buffer.commit()
        events = [event async for event in until_completed(connection)]
        assert events[-1].transcript
