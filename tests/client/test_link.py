from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from audiokv.client.link import ReconnectingLink
from audiokv.client.settings import LinkSettings
from audiokv.streaming.messages import ErrorReport, Finalize, Limits, Resume, Stop, Update
from tests.client.conftest import speech, words_said
from tests.client.listening import (
    assert_lawful,
    captions_in,
    events_of,
    link_to,
    notices_in,
    said_in,
    speak_through,
)

if TYPE_CHECKING:
    from audiokv.client.events import LinkEvent
    from tests.client.conftest import ManualClock, ScriptedServer


async def test_captions_come_and_the_tail_with_them(server: ScriptedServer) -> None:
    async with link_to(server) as link:
        await link.send(speech(12))
        done = await link.stop()
        events = await events_of(link)
    assert said_in(events) == words_said(12)
    assert_lawful(captions_in(events))
    assert (done.received_ms, done.segments) == (1200, 3)
    assert captions_in(events)[-1].is_final


async def test_odd_splits_do_not_matter(server: ScriptedServer) -> None:
    async with link_to(server) as link:
        audio = speech(7)
        for first in range(0, len(audio), 777):
            await link.send(audio[first : first + 777])
        await link.stop()
        assert said_in(await events_of(link)) == words_said(7)


class Misfortune:
    """Cuts connections or makes the server forget, at random messages; remembers what it did.

    The first deed of the list comes early and for certain.
    """

    def __init__(self, seed: int, deeds: list[str]) -> None:
        self.chance = random.Random(seed)  # noqa: S311  a reproducible test, not a secret
        self._plan = {n: self.chance.choice(deeds) for n in self.chance.sample(range(1, 60), 8)}
        self._plan[self.chance.randrange(1, 6)] = deeds[0]
        self.done: list[str] = []

    def __call__(self, n_message: int) -> str | None:
        deed = self._plan.get(n_message)
        if deed:
            self.done.append(deed)
        return deed


def assert_undisturbed(events: list[LinkEvent]) -> None:
    assert said_in(events) == words_said(60)
    assert_lawful(captions_in(events))
    words = [word for c in captions_in(events) if c.is_final for word in c.words]
    assert [word.start_ms for word in words] == [i * 100 for i in range(60)]
    assert [word.end_ms for word in words] == [i * 100 + 100 for i in range(60)]


@pytest.mark.parametrize("seed", range(10))
async def test_cut_anywhere_everything_arrives_once(server: ScriptedServer, seed: int) -> None:
    server.on_message = misfortune = Misfortune(seed, ["cut before", "cut after"])
    async with link_to(server) as link:
        events = await speak_through(link, speech(60), misfortune.chance)
    assert_undisturbed(events)
    assert len(misfortune.done) >= 2
    assert len(server.starts) == 1 + len(misfortune.done)
    assert len(server.streams) == 1


@pytest.mark.parametrize("seed", range(10))
async def test_a_server_that_forgets_is_told_again(server: ScriptedServer, seed: int) -> None:
    server.on_message = misfortune = Misfortune(seed, ["forget", "cut after"])
    async with link_to(server) as link:
        events = await speak_through(link, speech(60), misfortune.chance)
    assert_undisturbed(events)
    assert notices_in(events).count("stream_restarted") == misfortune.done.count("forget") > 0


async def test_resuming_names_the_token_and_the_last_caption(server: ScriptedServer) -> None:
    server.on_message = {2: "cut before"}.get
    async with link_to(server, prompt="AudioKV") as link:
        await link.send(speech(3))
        while link.unacknowledged_ms:
            await anext(link)
        await link.send(speech(3, first=4))
        await link.stop()
    first, second = server.starts[0], server.starts[-1]
    assert first.resume is None
    assert second.resume == Resume("r-0", 3)
    assert second.prompt == "AudioKV"


async def test_requests_keep_their_place_in_the_audio(server: ScriptedServer) -> None:
    async with link_to(server) as link:
        await link.send(speech(2))
        link.finalize()
        await link.send(speech(3, first=3))
        link.update(language="de")
        await link.stop()
        events = await events_of(link)
    assert [c.text for c in captions_in(events) if c.is_final] == ["w1 w2", "w3 w4 w5"]
    assert server.heard == [Finalize(), Update(language="de"), Stop()]


async def test_the_last_wishes_hold_for_a_new_stream(server: ScriptedServer) -> None:
    server.on_message = {2: "forget"}.get
    async with link_to(server, language="en", prompt="a") as link:
        link.update(language="de", profile="noisy")
        await link.send(speech(2))
        await link.stop()
    last = server.starts[-1]
    assert (last.language, last.prompt, last.profile, last.resume) == ("de", "a", "noisy", None)


async def test_a_fast_sender_waits_for_the_server(server: ScriptedServer) -> None:
    server.limits = Limits(65_536, 60.0, 60.0, 1_000)
    server.is_hearing.clear()
    async with link_to(server) as link:
        await anext(link)  # progress: the limits are known
        sending = asyncio.create_task(link.send(speech(50)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not sending.done()
        assert link.unacknowledged_ms == 5_000
        server.is_hearing.set()
        await sending
        assert link.unacknowledged_ms <= 1_000
        await link.stop()
        assert said_in(await events_of(link)) == words_said(50)


async def test_live_audio_is_dropped_oldest_first_and_said_so(server: ScriptedServer) -> None:
    server.refusals = [(ErrorReport("full", "Full.", "Later.", retry_after_s=0.0), 1013)] * 3
    async with link_to(server, max_offered_ms=1_000) as link:
        for number in range(1, 31):
            link.offer(speech(1, first=number))
        await link.stop()
        events = await events_of(link)
    assert said_in(events) == words_said(10, first=21)
    first_word = next(c for c in captions_in(events) if c.is_final).words[0]
    assert first_word.start_ms == 2_000
    assert [n for n in notices_in(events) if n.startswith("audio")] == [
        "audio_dropped",
        "audio_lost",
    ]


async def test_audio_lost_amid_a_stream_ends_the_segment(server: ScriptedServer) -> None:
    async with link_to(server, max_offered_ms=1_000) as link:
        link.offer(speech(2))
        while link.unacknowledged_ms:
            await anext(link)
        for number in range(3, 23):
            link.offer(speech(1, first=number))
        await link.stop()
        finals = [c for c in captions_in(await events_of(link)) if c.is_final]
    assert [c.text for c in finals] == ["w1 w2", "w13 w14 w15 w16 w17", "w18 w19 w20 w21 w22"]
    assert [c.start_ms for c in finals] == [0, 1_200, 1_700]
    assert [c.end_ms for c in finals] == [200, 1_700, 2_200]


class FreezingWire:
    """Stands between a link and a server, and can stop carrying anything without closing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.is_flowing = asyncio.Event()
        self.is_flowing.set()
        self.n_connections = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        away_reader, away_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.wait(
            [
                asyncio.create_task(self._pump(reader, away_writer)),
                asyncio.create_task(self._pump(away_reader, writer)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        writer.close()
        away_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            await self.is_flowing.wait()
            writer.write(piece)


async def test_a_connection_that_is_only_half_open_is_given_up(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    wire = FreezingWire(server.port)
    async with await asyncio.start_server(wire.carry, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        settings = LinkSettings(url=f"ws://127.0.0.1:{port}/v1/stream")
        async with ReconnectingLink(settings, clock=manual_clock) as link:
            await link.send(speech(1))
            while link.unacknowledged_ms:
                await anext(link)
            wire.is_flowing.clear()
            await link.send(speech(1, first=2))
            events = asyncio.create_task(events_of(link))
            while not any(delay_s < 1.0 for delay_s in manual_clock.sleeps):  # until it backs off
                manual_clock.advance(5.0)
                await asyncio.sleep(0)
            assert manual_clock.time_s >= 10.0
            wire.is_flowing.set()
            manual_clock.advance(1.0)
            await link.stop()
            assert said_in(await events) == words_said(2)
        assert wire.n_connections == 2
        assert server.starts[1].resume == Resume("r-0", 1)


async def test_the_token_travels_in_the_header(server: ScriptedServer) -> None:
    async with link_to(server, token="s3cret") as link:  # noqa: S106  a made-up token
        await link.stop()
    assert server.authorizations == ["Bearer s3cret"]


async def test_leaving_early_ends_the_connection(server: ScriptedServer) -> None:
    async with link_to(server) as link:
        await link.send(speech(1))
    with pytest.raises(RuntimeError):
        await ReconnectingLink(LinkSettings(url=server.url)).stop()


async def test_audio_after_the_end_is_a_mistake(server: ScriptedServer) -> None:
    async with link_to(server) as link:
        await link.stop()
        with pytest.raises(RuntimeError, match="stopped"):
            await link.send(speech(1))
