"""A scripted caption server on a real socket, and a clock the tests hold in their hands."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from audiokv.streaming.audio_cache import (
    CacheCounters,
    ChosenSlots,
    Evictions,
    LeftSlots,
    PoolSlots,
)
from audiokv.streaming.captions import Caption, Word, join_words
from audiokv.streaming.messages import (
    ClientMessage,
    Done,
    ErrorReport,
    Finalize,
    Limits,
    Progress,
    Ready,
    Start,
    Stop,
    decode_client,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from websockets.http11 import Request, Response

WORD_SAMPLES = 1_600
WORD_MS = 100
WORDS_A_SEGMENT = 5
COUNTERS = CacheCounters(
    policy="uniform",
    seen_slots=9,
    held_slots=5,
    budget_slots=6,
    pools=PoolSlots(base=3, buffer=1, reserve=1),
    n_evictions=Evictions(hot=0, between_steps=2, in_pauses=1),
    held_bytes=5_120,
    left_slots=LeftSlots(forced=0, ahead=3, expired=1, shared=0),
    chosen_slots=ChosenSlots(committed=1, silence=2, speech=0),
)


def speech(n_words: int, first: int = 1) -> bytes:
    """Audio of numbered words, 100 ms each at 16 kHz: every sample of a word is its number."""
    return np.repeat(np.arange(first, first + n_words, dtype="<i2"), WORD_SAMPLES).tobytes()


def words_said(n_words: int, first: int = 1) -> list[str]:
    return [f"w{number}" for number in range(first, first + n_words)]


class ScriptedStream:
    """Recognises numbered words; the last word of a partial is tentative."""

    def __init__(self) -> None:
        self.received = b""
        self.captions: list[Caption] = []
        self.n_heard = 0
        self.open: list[Word] = []
        self.segment = 0
        self.revision = 0

    def hear(self, audio: bytes) -> None:
        self.received += audio
        while len(self.received) // 2 >= (self.n_heard + 1) * WORD_SAMPLES:
            start = self.n_heard * WORD_SAMPLES * 2
            samples = np.frombuffer(self.received[start : start + WORD_SAMPLES * 2], "<i2")
            self._hear_word(samples)

    def _hear_word(self, samples: np.ndarray[tuple[int], np.dtype[np.int16]]) -> None:
        text = f"w{samples[0]}" if (samples == samples[0]).all() else "BROKEN"
        at_ms = self.n_heard * WORD_MS
        self.n_heard += 1
        self.open = [
            *(Word(w.text, w.start_ms, w.end_ms, 0.9, is_final=True) for w in self.open),
            Word(text, at_ms, at_ms + WORD_MS, 0.5),
        ]
        if len(self.open) == WORDS_A_SEGMENT:
            self.close_segment()
        else:
            self._say(tuple(self.open), is_final=False)

    def close_segment(self) -> None:
        if not self.open:
            return
        words = tuple(Word(w.text, w.start_ms, w.end_ms, 0.9, is_final=True) for w in self.open)
        self._say(words, is_final=True)
        self.open = []
        self.segment += 1
        self.revision = 0

    def _say(self, words: tuple[Word, ...], *, is_final: bool) -> None:
        self.captions.append(
            Caption(
                seq=len(self.captions) + 1,
                segment=self.segment,
                revision=self.revision,
                is_final=is_final,
                start_ms=words[0].start_ms,
                end_ms=words[-1].end_ms,
                text=join_words(words),
                language="en",
                speaker=None,
                words=words,
            )
        )
        self.revision += 1

    @property
    def n_samples(self) -> int:
        return len(self.received) // 2

    @property
    def progress(self) -> Progress:
        ms = self.n_samples * 1000 // 16_000
        return Progress(ms, self.n_samples, self.n_heard * WORD_MS, 0)


@dataclass
class ScriptedServer:
    """A server of the native protocol that does what a test tells it.

    Attributes:
        refusals: Answers for the next connections instead of ``ready``.
        on_message: Called with the number of each message received; may cut or forget.
        is_hearing: Cleared to leave audio unread and unconfirmed.
        cache: What every progress says about the audio cache.
    """

    limits: Limits = field(default_factory=lambda: Limits(65_536, 60.0, 60.0, 10_000))
    refusals: list[tuple[ErrorReport | None, int]] = field(default_factory=list)
    on_message: Callable[[int], str | None] = lambda _: None
    streams: dict[str, ScriptedStream] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    heard: list[ClientMessage] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    port: int = 0
    cache: CacheCounters | None = None

    def __post_init__(self) -> None:
        self._names = itertools.count()
        self._n_messages = 0
        self.is_hearing = asyncio.Event()
        self.is_hearing.set()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def answer(self, _: ServerConnection, request: Request) -> Response | None:
        self.authorizations.append(request.headers.get("Authorization"))
        return None

    async def handle(self, socket: ServerConnection) -> None:
        try:
            await self._converse(socket)
        except ConnectionClosed:
            return

    async def _converse(self, socket: ServerConnection) -> None:
        start = decode_client(str(await socket.recv()))
        assert isinstance(start, Start)
        self.starts.append(start)
        if self.refusals:
            report, code = self.refusals.pop(0)
            if report is not None:
                await socket.send(encode(report))
            await socket.close(code)
            return
        token = start.resume.token if start.resume else f"r-{next(self._names)}"
        if start.resume is not None and token not in self.streams:
            await socket.send(
                encode(ErrorReport("unknown_resume", "Unknown token.", "Start anew."))
            )
            await socket.close(4400)
            return
        stream = self.streams.setdefault(token, ScriptedStream())
        is_resumed = start.resume is not None
        await socket.send(
            encode(Ready("s", "m", ("en",), self.limits, token, is_resumed, stream.n_samples))
        )
        n_said = start.resume.last_seq if start.resume else 0
        await self._serve(socket, stream, n_said)

    async def _serve(self, socket: ServerConnection, stream: ScriptedStream, n_said: int) -> None:
        while True:
            for caption in stream.captions[n_said:]:
                await socket.send(encode(caption))
            n_said = len(stream.captions)
            await socket.send(encode(replace(stream.progress, cache=self.cache)))
            raw = await socket.recv()
            await self.is_hearing.wait()
            self._n_messages += 1
            deed = self.on_message(self._n_messages)
            if deed == "cut before":
                return self._cut(socket)
            if deed == "forget":
                self.streams.clear()
                return self._cut(socket)
            if isinstance(raw, bytes):
                stream.hear(raw)
            else:
                self._obey(stream, decode_client(raw))
            if deed == "cut after":
                return self._cut(socket)
            if isinstance(raw, str) and isinstance(decode_client(raw), Stop):
                return await self._end(socket, stream, n_said)

    def _obey(self, stream: ScriptedStream, message: ClientMessage) -> None:
        self.heard.append(message)
        if isinstance(message, Finalize | Stop):
            stream.close_segment()

    @staticmethod
    def _cut(socket: ServerConnection) -> None:
        socket.transport.abort()

    @staticmethod
    async def _end(socket: ServerConnection, stream: ScriptedStream, n_said: int) -> None:
        for caption in stream.captions[n_said:]:
            await socket.send(encode(caption))
        await socket.send(encode(Done(stream.progress.received_ms, stream.segment)))
        await socket.close()


async def listen(server: ScriptedServer) -> Server:
    running = await serve(
        server.handle, "127.0.0.1", 0, process_request=server.answer, close_timeout=1
    )
    server.port = running.sockets[0].getsockname()[1]
    return running


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A scripted server that listens."""
    scripted = ScriptedServer()
    running = await listen(scripted)
    yield scripted
    scripted.is_hearing.set()
    running.close()
    await running.wait_closed()


class ManualClock:
    """A clock that goes on only when told to."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.sleeps: list[float] = []
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        return self.time_s

    async def sleep(self, delay_s: float) -> None:
        self.sleeps.append(delay_s)
        due = asyncio.get_running_loop().create_future()
        self._waiting.append((self.time_s + delay_s, due))
        await due

    def advance(self, delay_s: float) -> None:
        self.time_s += delay_s
        due = [future for at_s, future in self._waiting if at_s <= self.time_s]
        self._waiting = [waiter for waiter in self._waiting if waiter[0] > self.time_s]
        for future in due:
            if not future.done():
                future.set_result(None)


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock at 0 s."""
    return ManualClock()
