"""The link and the real server, with a scripted recogniser and a wire that breaks."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from audiokv.client.link import ReconnectingLink
from audiokv.client.settings import LinkSettings
from tests.client.listening import (
    assert_lawful,
    at_once,
    captions_in,
    events_of,
    notices_in,
    speak_through,
)
from tests.server.doubles import speech, undisturbed, until
from tests.server.running import running_server, stream_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from audiokv.streaming.captions import Caption


class BreakingWire:
    """Carries connections to a server, each until a random number of pieces has passed.

    Args:
        chance: Decides.
        n_breaks: Connections that break; later ones hold.
    """

    def __init__(self, chance: random.Random, n_breaks: int) -> None:
        self.port = 0  # of the server
        self._chance = chance
        self._n_breaks = n_breaks
        self.n_broken = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            away_reader, away_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        budget = [self._chance.randrange(8, 40) if self.n_broken < self._n_breaks else 10**9]
        pumps = [
            asyncio.create_task(self._pump(reader, away_writer, budget)),
            asyncio.create_task(self._pump(away_reader, writer, budget)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.n_broken += budget[0] <= 0
        writer.transport.abort()
        away_writer.transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int]
    ) -> None:
        while budget[0] > 0 and (piece := await reader.read(self._chance.randrange(100, 4_000))):
            budget[0] -= 1
            writer.write(piece)


@asynccontextmanager
async def listening(wire: BreakingWire) -> AsyncIterator[str]:
    """Let a wire take connections; yields the address a link uses."""
    async with await asyncio.start_server(wire.carry, "127.0.0.1", 0) as listener:
        yield f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/stream"


def finals(captions: Sequence[Caption]) -> list[tuple[str, int, int]]:
    return [
        (word.text, word.start_ms, word.end_ms)
        for caption in captions
        if caption.is_final
        for word in caption.words
    ]


async def test_an_undisturbed_stream() -> None:
    audio = speech(1, seconds=8.0)
    async with (
        running_server() as server,
        ReconnectingLink(LinkSettings(url=stream_url(server))) as link,
    ):
        await link.send(audio)
        done = await link.stop()
        captions = captions_in(await events_of(link))
    assert finals(captions) == finals(captions_in(undisturbed(audio)))
    assert done.received_ms == 8_000
    assert_lawful(captions)


@pytest.mark.parametrize("seed", range(10))
async def test_a_wire_that_breaks_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a reproducible test, not a secret
    audio = speech(seed, seconds=12.0)
    wire = BreakingWire(chance, n_breaks=6)
    async with running_server() as server, listening(wire) as url:
        wire.port = server.port
        async with ReconnectingLink(LinkSettings(url=url), backoff=at_once()) as link:
            events = await speak_through(link, audio, chance)
    captions = captions_in(events)
    assert finals(captions) == finals(captions_in(undisturbed(audio)))
    assert_lawful(captions)
    assert wire.n_broken == 6
    assert notices_in(events).count("stream_restarted") == 0


@pytest.mark.parametrize("seed", range(5))
async def test_a_server_that_restarts_loses_no_word(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a reproducible test, not a secret
    audio = speech(seed, seconds=12.0)
    cut = chance.randrange(40_000, 300_000)
    wire = BreakingWire(chance, n_breaks=0)
    async with listening(wire) as url:
        settings = LinkSettings(url=url)
        async with running_server() as first:
            wire.port = first.port
            link = await ReconnectingLink(settings, backoff=at_once()).__aenter__()
            reading = asyncio.create_task(events_of(link))
            await link.send(audio[:cut])
            await until(lambda: not link.unacknowledged_ms)
        async with running_server() as second:
            wire.port = second.port
            await link.send(audio[cut:])
            done = await link.stop()
            events = await reading
            await link.__aexit__(None, None, None)
    captions = captions_in(events)
    assert_lawful(captions)
    assert done.received_ms == 12_000
    assert "stream_restarted" in notices_in(events)
    assert content(captions) == content(captions_in(undisturbed(audio)))


def content(captions: Sequence[Caption]) -> list[tuple[str, int]]:
    """Return what each word was made from and when; its name counts from the stream's start."""
    return [(text.partition(".")[2], start_ms) for text, start_ms, _ in finals(captions)]
