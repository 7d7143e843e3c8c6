"""Callers that know nothing of this project's code, and a listener to all streams of a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from audiokv.streaming.captions import Caption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from audiokv.server.app import CaptionServer
    from audiokv.server.live_stream import LiveStream
    from audiokv.server.refusals import RefusalError
    from audiokv.server.worker import Said
    from audiokv.streaming.messages import Done, Progress, Ready

AUDIOSOCKET_8K = 0x10
PACKET_BYTES = 320  # 20 ms of linear audio at 8 kHz


class Heard:
    """What one stream said.

    Attributes:
        metadata: What the stream is called by its protocol.
        fmt: Format of its audio.
        options: What it was opened with.
        captions: All captions, in order.
        done: Its end, or None while it runs.
    """

    def __init__(self, stream: LiveStream, on_over: Callable[[], object] = lambda: None) -> None:
        self._on_over = on_over
        self.metadata = dict(stream.metadata)
        self.fmt = stream.fmt
        self.options = stream.options
        self.captions: list[Caption] = []
        self.done: Done | None = None

    @property
    def text(self) -> str:
        """Everything said, once it was final."""
        return " ".join(c.text for c in self.captions if c.is_final)

    def begin(self, ready: Ready, past: Iterable[bytes]) -> None:
        del ready
        assert not list(past)

    def hear(self, said: Said) -> None:
        if isinstance(said.event, Caption):
            self.captions.append(said.event)

    def report(self, progress: Progress) -> None:
        raise AssertionError(progress)

    def end(self, done: Done) -> None:
        self.done = done
        self._on_over()

    def fail(self, refusal: RefusalError) -> None:
        raise AssertionError(refusal)


class Follower:
    """Listens to every stream of a server that opens from now on."""

    def __init__(self, server: CaptionServer) -> None:
        self.streams: list[Heard] = []
        self._is_changed = asyncio.Event()
        server.registry.follow(self._open)

    def _open(self, stream: LiveStream) -> Heard:
        self.streams.append(Heard(stream, self._is_changed.set))
        return self.streams[-1]

    async def all_done(self, n_streams: int) -> list[Heard]:
        """Wait until so many streams have opened and ended."""
        while len([s for s in self.streams if s.done is not None]) != n_streams:
            self._is_changed.clear()
            await self._is_changed.wait()
        return self.streams


class AudioSocketCaller:
    """Asterisk's side of an AudioSocket, written from its documentation.

    Attributes:
        heard: Everything the server sent.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.heard = b""

    @classmethod
    async def dial(cls, server: CaptionServer, call: UUID) -> AudioSocketCaller:
        port = server.other_ports["audiosocket_port"]
        caller = cls(*await asyncio.open_connection("127.0.0.1", port))
        caller.send(1, call.bytes)
        return caller

    def send(self, kind: int, payload: bytes = b"") -> None:
        self._writer.write(bytes([kind]) + len(payload).to_bytes(2, "big") + payload)

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def speak(self, audio: bytes, kind: int = AUDIOSOCKET_8K) -> None:
        """Send audio in packets of 20 ms, as fast as they are taken."""
        for start in range(0, len(audio), PACKET_BYTES):
            self.send(kind, audio[start : start + PACKET_BYTES])
            await self._writer.drain()

    async def hang_up(self) -> bytes:
        """Close as Asterisk does, without a word; return what the server had sent."""
        self._writer.write_eof()
        self.heard += await self._reader.read()
        self._writer.close()
        return self.heard

    async def rest(self) -> bytes:
        """Return everything until the server closes."""
        self.heard += await self._reader.read()
        self._writer.close()
        return self.heard
