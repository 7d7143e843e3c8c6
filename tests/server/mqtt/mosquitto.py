"""A real broker on a free port, and a subscriber that is not ours."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from aiomqtt import Client, Message, MqttError, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

HOST = "127.0.0.1"
PATIENCE_S = 60  # a limit for tests that hang, never a wait


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        return int(listening.getsockname()[1])


class Mosquitto:
    """Debian's broker in a folder of its own; sessions and retained messages outlive a restart.

    Args:
        folder: Where it keeps its files.
        lines: More lines of configuration, instead of letting everyone in.
    """

    def __init__(self, folder: Path, lines: str = "allow_anonymous true") -> None:
        self.port = free_port()
        self._file = folder / "mosquitto.conf"
        self._file.write_text(
            f"listener {self.port} {HOST}\n{lines}\npersistence true\n"
            f"persistence_location {folder}/\nuser {'root' if os.getuid() == 0 else 'mosquitto'}\n"
        )
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"mqtt://{HOST}:{self.port}"

    async def start(self) -> None:
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "mosquitto is not installed"
        self._process = await asyncio.create_subprocess_exec(
            program,
            "-c",
            self._file,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        while True:
            with suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection(HOST, self.port)
                writer.close()
                return
            assert self._process.returncode is None, "mosquitto ended at once"
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            await self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def running_broker(
    folder: Path, lines: str = "allow_anonymous true"
) -> AsyncIterator[Mosquitto]:
    broker = Mosquitto(folder, lines)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await broker.start()
            yield broker
    finally:
        await broker.stop()


class Subscriber:
    """Notes every message; the broker keeps its session while either of the two is away.

    Attributes:
        heard: All messages, in the order they came.
    """

    def __init__(self, port: int, topic_filter: str = "#") -> None:
        self._port = port
        self._identifier = f"subscriber-{secrets.token_hex(4)}"
        self._filter = topic_filter
        self._changed = asyncio.Event()
        self._is_listening = asyncio.Event()
        self._client: Client | None = None
        self.heard: list[Message] = []

    async def run(self) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # the library's
        properties.SessionExpiryInterval = 3_600
        while True:
            try:
                async with Client(
                    HOST,
                    self._port,
                    protocol=ProtocolVersion.V5,
                    identifier=self._identifier,
                    clean_start=False,
                    properties=properties,
                ) as client:
                    self._client = client
                    await client.subscribe(self._filter, qos=1)
                    self._is_listening.set()
                    async for message in client.messages:
                        self.heard.append(message)
                        self._changed.set()
            except MqttError:
                self._is_listening.clear()
                await asyncio.sleep(0.02)  # the broker is being restarted

    async def listening(self) -> None:
        await self._is_listening.wait()

    async def acknowledged(self) -> None:
        """Wait until the broker has every acknowledgement of what was heard."""
        assert self._client is not None
        await self._client.unsubscribe("nothing")  # answered after all that was sent before it

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the messages heard satisfy something; the caller's timeout bounds it."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def payloads(self, topic: str) -> list[bytes]:
        return [bytes(m.payload) for m in self.heard if m.topic.matches(topic)]

    async def wait_for(self, topic: str, n_messages: int = 1) -> list[bytes]:
        """Return what came on a topic or filter once it is so many."""
        await self.until(lambda: len(self.payloads(topic)) >= n_messages)
        return self.payloads(topic)


class Passage:
    """A way to the broker that can be cut like a cable.

    Attributes:
        port: Where clients connect instead of to the broker.
        n_connections: Connections made so far.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._to_clients: list[asyncio.StreamWriter] = []
        self._to_broker: list[asyncio.StreamWriter] = []
        self._is_open_behind = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.n_connections = 0
        self.is_answering = True  # whether what the broker says gets through

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        to_broker = await asyncio.open_connection(HOST, self._broker_port)
        self._to_clients.append(writer)
        self._to_broker.append(to_broker[1])
        for source, sink, is_answer in [
            (reader, to_broker[1], False),
            (to_broker[0], writer, True),
        ]:
            task = asyncio.create_task(self._carry(source, sink, is_answer=is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(4_096):
                if self.is_answering or not is_answer:
                    sink.write(data)
        if is_answer or not self._is_open_behind:
            sink.close()

    def cut(self) -> None:
        self.cut_side_of_client()
        for writer in self._to_broker:
            writer.transport.abort()
        self._to_broker.clear()

    def cut_side_of_client(self) -> None:
        """Let the client lose its connection while the broker believes it to be there."""
        self._is_open_behind = True
        for writer in self._to_clients:
            writer.transport.abort()
        self._to_clients.clear()


@asynccontextmanager
async def passage_to(broker: Mosquitto) -> AsyncIterator[Passage]:
    passage = Passage(broker.port)
    server = await asyncio.start_server(passage.take, HOST, 0)
    passage.port = server.sockets[0].getsockname()[1]
    try:
        yield passage
    finally:
        passage.cut()
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def subscribed(broker: Mosquitto, topic_filter: str = "#") -> AsyncIterator[Subscriber]:
    subscriber = Subscriber(broker.port, topic_filter)
    task = asyncio.create_task(subscriber.run())
    try:
        await subscriber.listening()
        yield subscriber
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
