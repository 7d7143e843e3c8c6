from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from audiokv.server.config import ServerConfig
from audiokv.server.protocols.native import SourceDialogue
from audiokv.streaming.captions import Caption
from audiokv.streaming.messages import (
    Done,
    Ready,
    Resume,
    Start,
    Stop,
    decode_server,
    encode,
)
from tests.server.doubles import (
    FakeWire,
    ManualClock,
    ScriptedRecognizer,
    captions_in,
    settle,
    silence,
    speech,
    undisturbed,
    until,
)
from tests.server.running import (
    Source,
    complete,
    has_no_connections,
    has_streams,
    running_server,
)

if TYPE_CHECKING:
    from audiokv.server.app import CaptionServer


async def test_a_stream_cut_ten_times_says_what_it_would_have_said() -> None:
    audio = speech(6, seconds=24)
    rng = np.random.default_rng(20)
    cuts = sorted(int(cut) for cut in rng.choice(len(audio), 10, replace=False))
    captions: list[Caption] = []
    token: str | None = None
    async with running_server() as server:
        for cut in [*cuts, len(audio)]:
            source = await Source.open(server)
            if token is None:
                ready = await source.start()
            else:
                ready = await source.resume(token, captions[-1].seq if captions else 0)
                assert ready.resumed
            token = ready.resume_token
            await source.send_audio(audio[2 * ready.received_samples : cut], message_bytes=1_601)
            if cut == len(audio):
                await complete(source, b"")
                captions += source.captions
            else:
                n_heard = int(rng.integers(6))
                while len(source.captions) < n_heard and not _is_quiet(server):
                    await source.next()
                captions += source.captions
                source.connection.transport.abort()
        await has_streams(server, 0, n_kept=0)
    assert captions == captions_in(undisturbed(audio))


def _is_quiet(server: CaptionServer) -> bool:
    return all(entry.stream.lag_ms < 300 for entry in server.registry._by_name.values())


async def test_a_resumed_source_is_told_exactly_what_is_held() -> None:
    async with running_server() as server:
        first = await Source.open(server)
        ready = await first.start()
        await first.send_audio(silence(seconds=0.5) + b"\x01")
        await first.connection.close()
        stream = server.registry._by_name[ready.stream].stream
        await until(lambda: stream.hub.source is None)
        second = await Source.open(server)
        again = await second.resume(ready.resume_token, 0)
        assert again == replace(ready, resumed=True, received_samples=8_000)


async def test_resuming_takes_over_from_a_connection_that_still_seems_open() -> None:
    audio = speech(7, seconds=4)
    async with running_server() as server:
        first = await Source.open(server)
        ready = await first.start()
        await first.send_audio(audio[:64_001])
        await first.wait_for(Caption)
        second = await Source.open(server)
        again = await second.resume(ready.resume_token, 0)
        assert await first.error() == ("taken_over", 1008)
        await complete(second, audio[2 * again.received_samples :])
        await has_streams(server, 0, n_kept=0)
    assert second.captions == captions_in(undisturbed(audio))


async def test_the_end_of_a_stream_can_be_fetched_after_a_cut() -> None:
    recognizer = ScriptedRecognizer()
    recognizer.gate.clear()
    audio = speech(8, seconds=3)
    async with running_server(recognizer) as server:
        first = await Source.open(server)
        ready = await first.start()
        await first.send_audio(audio)
        await first.send(Stop())
        stream = server.registry._by_name[ready.stream].stream
        await until(lambda: stream.is_stopping)
        first.connection.transport.abort()
        recognizer.gate.set()
        await has_streams(server, 0, n_kept=1)
        second = await Source.open(server)
        again = await second.resume(ready.resume_token, 0)
        assert again.received_samples == 48_000
        await second.send(Stop())
        assert await second.rest() == (1000, "done")
        await has_streams(server, 0, n_kept=0)
    assert second.captions == captions_in(undisturbed(audio))


async def test_after_the_window_the_stream_is_ended_and_forgotten() -> None:
    clock = ManualClock()
    audio = speech(9, seconds=2)
    async with running_server(clock=clock, resume_window_s=60) as server:
        source = await Source.open(server)
        ready = await source.start()
        viewer = await Source.watch(server, ready.stream)
        await source.send_audio(audio)
        stream = server.registry._by_name[ready.stream].stream
        await until(lambda: stream.received_ms == 2_000)
        source.connection.transport.abort()
        await until(lambda: stream.hub.source is None)
        await clock.advance(59)
        assert server.registry.n_streams == 1
        await clock.advance(1)
        assert await viewer.rest() == (1000, "done")
        await has_no_connections(server)
        assert (server.registry.n_kept, server.registry.n_viewers) == (0, 0)
        late = await Source.open(server)
        await late.send(Start("pcm_s16le", 16_000, resume=Resume(ready.resume_token or "", 0)))
        assert await late.error() == ("unknown_resume", 4400)
    finals = [c for c in captions_in(undisturbed(audio)) if c.is_final]
    assert [c for c in viewer.captions if c.is_final] == finals


async def test_what_an_old_connection_still_brings_is_not_heard() -> None:
    async with running_server() as server:
        old = FakeWire()
        old.feed(encode(Start("pcm_s16le", 16_000)))
        old.can_close.clear()
        clock = ManualClock()
        dialogue = SourceDialogue(old, registry=server.registry, config=ServerConfig(), clock=clock)
        serving = asyncio.ensure_future(dialogue.run())
        await until(lambda: len(old.sent) == 1)
        ready = decode_server(old.sent[0].decode())
        assert isinstance(ready, Ready)
        new = await Source.open(server)
        await new.resume(ready.resume_token, 0)
        old.feed(bytes(3_200))
        await until(lambda: old.n_unread == 0)
        await settle()
        old.can_close.set()
        await serving
        audio = speech(17, seconds=1)
        await complete(new, audio)
    assert new.captions == captions_in(undisturbed(audio))
    assert new.heard[-1] == Done(1_000, 1)
