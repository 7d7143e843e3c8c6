"""Devices at the desk, with a real stream registry and a scripted recogniser."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed

from audiokv.server.clock import LoopClock
from audiokv.server.config import ServerConfig
from audiokv.server.mqtt import desk as desk_module
from audiokv.server.mqtt.desk import Desk, TopicWire, addressed
from audiokv.server.mqtt.device import DeviceRoute
from audiokv.server.mqtt.hermes_listening import HermesRoute
from audiokv.server.mqtt.topics import Topics
from tests.server.doubles import speech, until
from tests.server.mqtt.test_hermes_listening import wav
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from audiokv.server.app import CaptionServer
    from audiokv.server.mqtt.unsent import Publication

TOPICS = Topics("c", "i")
EVENTS = TOPICS.to_device("mic")


class Counter:
    """A desk and what it published."""

    def __init__(self, server: CaptionServer) -> None:
        self.server = server
        self.published: list[Publication] = []
        self.desk = Desk(
            [DeviceRoute(TOPICS), HermesRoute()],
            publish=self.published.append,
            registry=server.registry,
            config=ServerConfig(),
            clock=LoopClock(),
        )

    def send(self, verb: str, payload: bytes = b"", device: str = "mic") -> None:
        self.desk.receive(TOPICS.from_device(device, verb), payload)

    def told(self, topic: str = EVENTS) -> list[dict[str, object]]:
        return [json.loads(p.payload) for p in self.published if p.topic == topic]

    def kinds(self) -> list[object]:
        return [told["type"] for told in self.told()]


@asynccontextmanager
async def counter(**settings: Any) -> AsyncIterator[Counter]:
    async with running_server(**settings) as server:
        made = Counter(server)
        yield made
        await made.desk.close()
        assert made.desk.n_connections == 0


async def test_a_device_s_audio_becomes_a_stream_from_start_to_done() -> None:
    async with counter() as made:
        made.send("start")
        await until(lambda: made.kinds() == ["ready"])
        stream = made.told()[0]["stream"]
        audio = speech(1, seconds=3)
        for start in range(0, len(audio), 640):
            made.send("audio", audio[start : start + 640])
        made.send("stop")
        await until(lambda: made.kinds() == ["ready", "done"])
        assert made.told()[1] == {"type": "done", "received_ms": 3_000, "segments": 2}
        await until(lambda: made.desk.n_connections == 0)
        await until(lambda: made.server.registry.n_kept == 0)
        assert str(stream).startswith("s-")
        assert {p.qos for p in made.published} == {1}


async def test_audio_without_a_start_is_answered() -> None:
    async with counter() as made:
        made.send("audio", b"\0\0")
        made.send("stop")
        assert [told["code"] for told in made.told()] == ["no_start"]
        assert made.server.registry.n_kept == 0


async def test_a_second_start_ends_the_first_stream() -> None:
    async with counter() as made:
        made.send("start")
        await until(lambda: made.kinds() == ["ready"])
        made.send("start")
        await until(lambda: made.kinds() == ["ready", "ready"])
        first, second = (told["stream"] for told in made.told())
        assert first != second
        await until(lambda: made.server.registry.n_streams == 1)
        assert made.desk.n_connections == 1


async def test_what_a_device_does_wrong_ends_its_own_stream_only() -> None:
    async with counter() as made:
        made.send("start", device="other")
        await until(lambda: made.server.registry.n_streams == 1)
        made.send("start", b"{")
        await until(lambda: made.kinds() == ["error"])
        assert made.told()[0]["code"] == "bad_json"
        await until(lambda: made.desk.n_connections == 1)
        assert made.server.registry.n_streams == 1


async def test_a_full_server_tells_the_device() -> None:
    async with counter(max_streams=1) as made:
        made.send("start", device="other")
        await until(lambda: made.server.registry.n_streams == 1)
        made.send("start")
        await until(lambda: made.kinds() == ["error"])
        assert made.told()[0]["code"] == "full"


async def test_a_device_far_too_fast_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(desk_module, "MAX_WAITING_BYTES", 10_000)
    async with counter() as made:
        made.send("start")
        await until(lambda: made.kinds() == ["ready"])
        for _ in range(20):
            made.send("audio", bytes(1_000))
        await until(lambda: made.desk.n_connections == 0)
    assert "device mic sent more than could be taken" in caplog.text


async def test_many_tiny_messages_are_bounded_too() -> None:
    wire = TopicWire("w", lambda _topic, _body: None)
    for _ in range(desk_module.MAX_WAITING_MESSAGES):
        wire.feed(b"")
    assert not wire.is_full
    wire.feed(b"")
    assert wire.is_full


async def test_a_hermes_session_ends_with_its_text() -> None:
    async with counter() as made:
        made.desk.receive("hermes/asr/startListening", b'{"siteId":"hall","sessionId":"d"}')
        audio = speech(1, seconds=3)
        for start in range(0, len(audio), 640):
            frame = wav(audio[start : start + 640])
            made.desk.receive("hermes/audioServer/hall/audioFrame", frame)
        await until(lambda: made.desk.n_connections == 0)
        (text,) = made.told("hermes/asr/textCaptured")
        assert (text["siteId"], text["sessionId"]) == ("hall", "d")
        assert len(str(text["text"]).split()) == 6  # up to the first pause, at 1.5 s
        made.desk.receive("hermes/audioServer/hall/audioFrame", wav(audio[:640]))
        assert len(made.published) == 1


async def test_a_hermes_session_that_is_stopped_ends_with_its_text_so_far() -> None:
    async with counter() as made:
        wish = b'{"siteId":"hall","stopOnSilence":false}'
        made.desk.receive("hermes/asr/startListening", wish)
        made.desk.receive("hermes/audioServer/hall/audioFrame", wav(speech(1, seconds=1)))
        made.desk.receive("hermes/asr/stopListening", b'{"siteId":"hall"}')
        await until(lambda: made.desk.n_connections == 0)
        (text,) = made.told("hermes/asr/textCaptured")
        assert len(str(text["text"]).split()) == 4


async def test_closing_ends_every_stream_s_connection() -> None:
    async with counter() as made:
        for device in ("a", "b"):
            made.send("start", device=device)
        await until(lambda: made.server.registry.n_streams == 2)
        await made.desk.close()
        assert made.desk.n_connections == 0
        await until(lambda: made.server.registry.n_streams == 0)


async def test_a_wire_addresses_what_is_sent_and_ends_when_closed() -> None:
    sent: list[tuple[str, bytes]] = []
    wire = TopicWire("w", lambda topic, body: sent.append((topic, body)))
    await wire.send(addressed("a/b", b"x\ny"))
    assert sent == [("a/b", b"x\ny")]
    wire.feed("first")
    assert await wire.receive() == "first"
    known = [wire.is_close_acknowledged]
    await wire.close(1000, "done")
    assert [*known, wire.is_close_acknowledged] == [False, True]
    with pytest.raises(ConnectionClosed):
        await wire.receive()
    with pytest.raises(ConnectionClosed):
        await wire.send(addressed("a/b", b""))
