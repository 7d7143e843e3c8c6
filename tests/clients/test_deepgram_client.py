"""``deepgram-sdk``, unmodified."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from deepgram import AsyncDeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment
from websockets.exceptions import ConnectionClosed

from tests.clients.conftest import Spoken, plain_words
from tests.server.doubles import speech
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.serving import RealServer

pytestmark = pytest.mark.clients

TOKEN = "correct-horse"  # noqa: S105  of a test
RAW = {"model": "nova-3", "encoding": "linear16", "sample_rate": "16000"}


def client_of(port: int, key: str = TOKEN) -> AsyncDeepgramClient:
    here = f"ws://127.0.0.1:{port}"
    environment = DeepgramClientEnvironment(
        base=here.replace("ws", "http"), production=here, agent=here, agent_rest=here
    )
    return AsyncDeepgramClient(api_key=key, environment=environment)


async def messages_of(connection: Any) -> AsyncIterator[Any]:
    with suppress(ConnectionClosed):
        async for message in connection:
            yield message


async def heard(port: int, audio: bytes, **options: str) -> list[Any]:
    """Stream audio and return every message, the last one first closing the stream."""
    async with client_of(port).listen.v1.connect(**{**RAW, **options}) as connection:
        for at in range(0, len(audio), 3_200):
            await connection.send_media(audio[at : at + 3_200])
        await connection.send_close_stream()
        return [message async for message in messages_of(connection)]


def finals(messages: list[Any]) -> list[Any]:
    return [m for m in messages if m.type == "Results" and m.is_final]


def text_of(messages: list[Any]) -> str:
    return " ".join(m.channel.alternatives[0].transcript for m in finals(messages))


@pytest.mark.weights
@pytest.mark.slow
async def test_the_sdk_hears_the_words(real_server: RealServer, spoken: Spoken) -> None:
    messages = await heard(
        real_server.port, spoken.pcm(), interim_results="true", smart_format="true"
    )
    assert plain_words(text_of(messages)) == spoken.words
    assert "He might" in text_of(messages)
    assert any(m.type == "Results" and not m.is_final for m in messages)
    assert messages[-1].type == "Metadata"
    assert messages[-1].duration == pytest.approx(len(spoken.samples) / 16_000, abs=0.01)


@pytest.mark.weights
@pytest.mark.slow
async def test_the_sdk_hears_the_words_of_a_telephone(
    real_server: RealServer, spoken: Spoken
) -> None:
    messages = await heard(
        real_server.port, spoken.mulaw(), encoding="mulaw", sample_rate="8000", language="en-US"
    )
    assert text_of(messages).split() == spoken.words


async def test_finalize_is_answered_also_where_nothing_was_said() -> None:
    async with (
        running_server(token=TOKEN) as server,
        client_of(server.port).listen.v1.connect(**RAW) as connection,
    ):
        await connection.send_media(speech(1, seconds=1))
        await connection.send_finalize()
        spoken = await connection.recv()
        assert spoken.from_finalize
        assert spoken.is_final
        assert spoken.channel.alternatives[0].transcript
        await connection.send_keep_alive()
        await connection.send_finalize()
        silent = await connection.recv()
        assert silent.from_finalize
        assert not silent.channel.alternatives[0].transcript
        await connection.send_close_stream()
        assert (await connection.recv()).type == "Metadata"
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


async def test_a_wrong_key_is_refused_at_the_handshake() -> None:
    async with running_server(token=TOKEN) as server:
        with pytest.raises(ApiError) as caught:
            async with client_of(server.port, "wrong-horse").listen.v1.connect(**RAW):
                pass
        assert caught.value.status_code == 401


async def test_an_option_that_is_not_supported_is_named() -> None:
    async with (
        running_server(token=TOKEN) as server,
        client_of(server.port).listen.v1.connect(**RAW, redact="pci") as connection,
    ):
        await connection.recv()  # the same as a message, which not every client shows
        with pytest.raises(ConnectionClosed) as closed:
            await connection.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert "redact" in closed.value.rcvd.reason


async def test_channels_keep_apart() -> None:
    left, right = speech(3, seconds=1.2), bytes(2 * 19_200)
    stereo = b"".join(left[i : i + 2] + right[i : i + 2] for i in range(0, len(left), 2))
    async with running_server(token=TOKEN) as server:
        messages = await heard(server.port, stereo, channels="2", multichannel="true")
    results = finals(messages)
    assert results
    assert {tuple(m.channel_index) for m in results} == {(0, 2)}
    assert messages[-1].channels == 2


async def test_streams_of_the_sdk_do_not_mix() -> None:
    audios = [speech(seed, seconds=1.5) for seed in range(4)]
    async with running_server(token=TOKEN) as server:
        alone = [text_of(await heard(server.port, audio)) for audio in audios]
        together = await asyncio.gather(*(heard(server.port, audio) for audio in audios))
    assert [text_of(messages) for messages in together] == alone
    assert len(set(alone)) == 4
