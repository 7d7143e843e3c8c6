from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from websockets.exceptions import ConnectionClosedError

from audiokv.client.conversation import Conversation
from audiokv.client.failures import LinkError, LostError
from audiokv.streaming.messages import (
    Done,
    ErrorReport,
    Keepalive,
    Limits,
    Progress,
    Ready,
    Start,
    encode,
)

if TYPE_CHECKING:
    from audiokv.streaming.messages import ClientMessage, ServerMessage
    from tests.client.conftest import ManualClock

LIMITS = Limits(65_536, 60.0, 60.0, 10_000)
READY = Ready("s", "m", ("en",), LIMITS, "r")
START = Start("pcm_s16le", 16_000)
DONE = Done(0, 0)


class FakeSocket:
    """The client's side of a connection, worked by the test."""

    def __init__(self) -> None:
        self.sent: list[str | bytes] = []
        self.coming: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.n_pings = 0
        self.answers_pings = True
        self.is_aborted = False

    @property
    def transport(self) -> FakeSocket:
        return self

    def abort(self) -> None:
        self.is_aborted = True
        self.coming.put_nowait(None)

    def say(self, *messages: ServerMessage) -> None:
        for message in messages:
            self.coming.put_nowait(encode(message))

    async def send(self, message: str | bytes) -> None:
        if self.is_aborted:
            raise ConnectionClosedError(None, None)
        self.sent.append(message)

    async def recv(self) -> str | bytes:
        message = await self.coming.get()
        if message is None:
            raise ConnectionClosedError(None, None)
        return message

    async def ping(self) -> asyncio.Future[float]:
        if self.is_aborted:
            raise ConnectionClosedError(None, None)
        self.n_pings += 1
        pong: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        if self.answers_pings:
            pong.set_result(0.0)
        return pong


class FakeSpeaker:
    """Says what the test puts in its mouth."""

    def __init__(self) -> None:
        self.to_say: asyncio.Queue[bytes | ClientMessage] = asyncio.Queue()
        self.heard: list[ServerMessage] = []

    def opening(self) -> Start:
        return START

    def hear(self, message: ServerMessage) -> None:
        self.heard.append(message)

    async def next_to_send(self, limits: Limits) -> bytes | ClientMessage:
        assert limits == LIMITS
        return await self.to_say.get()


class Scene:
    """A conversation with everything around it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.socket = FakeSocket()
        self.speaker = FakeSpeaker()
        self.task = asyncio.create_task(
            Conversation(cast("Any", self.socket), self.speaker, clock, 10.0).run()
        )

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.settle()


@pytest.fixture
async def scene(manual_clock: ManualClock) -> Scene:
    scene = Scene(manual_clock)
    await scene.settle()
    return scene


async def test_audio_waits_until_the_server_is_ready(scene: Scene) -> None:
    scene.speaker.to_say.put_nowait(b"audio")
    await scene.settle()
    assert scene.socket.sent == [encode(START)]
    scene.socket.say(READY)
    await scene.settle()
    assert scene.socket.sent == [encode(START), b"audio"]
    scene.socket.say(DONE)
    assert await scene.task == DONE
    assert scene.speaker.heard == [READY, DONE]


async def test_a_refusal_carries_what_the_server_said(scene: Scene) -> None:
    scene.socket.say(ErrorReport("why", "So.", "Do."))
    scene.socket.abort()
    with pytest.raises(LostError) as lost:
        await scene.task
    assert lost.value.report == ErrorReport("why", "So.", "Do.")


@pytest.mark.parametrize("nonsense", [b"\x00", "{", '{"type": "dance"}'])
async def test_nonsense_from_the_server_ends_the_link(scene: Scene, nonsense: str | bytes) -> None:
    scene.socket.coming.put_nowait(nonsense)
    with pytest.raises(LinkError, match="matching versions"):
        await scene.task


async def test_an_idle_source_keeps_its_stream_open(scene: Scene) -> None:
    scene.socket.say(READY)
    await scene.settle()
    for _ in range(4):
        await scene.pass_time(5.0)
        scene.socket.say(Progress(0, 0, 0, 0))
        await scene.settle()
    assert scene.socket.sent == [encode(START), encode(Keepalive())]
    scene.speaker.to_say.put_nowait(b"audio")
    await scene.settle()
    await scene.pass_time(15.0)
    assert scene.socket.sent[2:] == [b"audio"]


async def test_a_quiet_server_that_answers_pings_is_left_alone(scene: Scene) -> None:
    for n in range(1, 11):
        await scene.pass_time(5.0)
        assert scene.socket.n_pings == n
    assert not scene.socket.is_aborted


async def test_a_server_that_talks_is_not_pinged(scene: Scene) -> None:
    for _ in range(5):
        await scene.pass_time(3.0)
        scene.socket.say(Progress(0, 0, 0, 0))
        await scene.settle()
        await scene.pass_time(2.0)
    assert scene.socket.n_pings == 0


async def test_a_dead_connection_is_cut(scene: Scene) -> None:
    scene.socket.answers_pings = False
    scene.socket.say(READY)
    await scene.settle()
    was_aborted = []
    for _ in range(2):
        await scene.pass_time(5.0)
        was_aborted.append(scene.socket.is_aborted)
    assert was_aborted == [False, True]
    with pytest.raises(LostError, match="vanished"):
        await scene.task


async def test_whoever_speaks_leaves_the_finding_out_to_the_listener(scene: Scene) -> None:
    scene.socket.say(READY)
    await scene.settle()
    scene.socket.is_aborted = True
    scene.speaker.to_say.put_nowait(b"audio")
    await scene.pass_time(25.0)
    scene.socket.coming.put_nowait(None)
    with pytest.raises(LostError):
        await scene.task
