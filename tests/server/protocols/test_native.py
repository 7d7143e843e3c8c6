from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from audiokv.models.base import StreamOptions
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.messages import (
    Done,
    ErrorReport,
    Finalize,
    Keepalive,
    Progress,
    Start,
    Stop,
    Update,
    encode,
)
from tests.server.doubles import (
    COUNTERS,
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
    has_streams,
    running_server,
)

START = encode(Start("pcm_s16le", 16_000))


async def test_a_stream_says_what_its_session_says() -> None:
    audio = speech(1, seconds=6)
    async with running_server() as server:
        source = await Source.open(server)
        ready = await source.start()
        assert ready.model == "scripted"
        assert ready.received_samples == 0
        await complete(source, audio)
        await has_streams(server, 0, n_kept=0)
    expected = captions_in(undisturbed(audio))
    assert source.captions == expected
    assert source.heard[-1] == Done(6_000, sum(c.is_final for c in expected))
    assert len(expected) > 10


@pytest.mark.parametrize("message_bytes", [1, 7, 320, 65_536])
async def test_messages_may_split_the_audio_anywhere(message_bytes: int) -> None:
    audio = speech(2, seconds=1.2)
    async with running_server() as server:
        source = await Source.open(server)
        await source.start()
        await source.send_audio(audio, message_bytes=message_bytes)
        await complete(source, b"")
    assert source.captions == captions_in(undisturbed(audio))


async def test_other_formats_are_understood() -> None:
    fmt = AudioFormat(Encoding.PCM_F32LE, 48_000, 2)
    noise = np.random.default_rng(1).uniform(-0.3, 0.3, 96_000)
    audio = noise.astype("<f4").tobytes()
    async with running_server() as server:
        source = await Source.open(server)
        await source.send(Start("pcm_f32le", 48_000, channels=2))
        await complete(source, audio)
    assert source.captions == captions_in(undisturbed(audio, fmt=fmt))
    assert source.captions


async def test_an_empty_stream_ends_well() -> None:
    async with running_server() as server:
        source = await Source.open(server)
        await source.start()
        await source.send(Stop())
        await source.send(Stop())
        await source.send(Keepalive())
        assert await source.rest() == (1000, "done")
    assert source.heard[-1] == Done(0, 0)


async def test_finalize_ends_the_segment_and_the_stream_goes_on() -> None:
    audio = speech(3, seconds=1)
    async with running_server() as server:
        source = await Source.open(server)
        await source.start()
        await source.send_audio(audio)
        await source.send(Finalize())
        final = await source.wait_for(Caption, lambda caption: caption.is_final)
        assert final.end_ms == 1_000
        await complete(source, silence(seconds=1) + audio)
    assert source.captions[-1].segment == 1


async def test_update_changes_language_and_prompt_from_then_on() -> None:
    audio = speech(4, seconds=1)
    async with running_server() as server:
        source = await Source.open(server)
        await source.start(language="en")
        await source.send_audio(audio)
        await source.send(Finalize())
        await source.wait_for(Caption, lambda caption: caption.is_final)
        await source.send(Update(language="de", prompt="AudioKV"))
        await complete(source, silence(seconds=1) + audio)
    assert [c.language for c in source.captions if c.is_final] == ["en", "de"]
    assert "AudioKV" in source.captions[-1].text


async def test_progress_comes_every_second_also_when_nothing_happens() -> None:
    clock = ManualClock()
    async with running_server(clock=clock) as server:
        source = await Source.open(server)
        await source.start()
        for _ in range(3):
            await clock.advance(1)
            assert await source.next() == Progress(0, 0, 0, 0)


async def test_progress_tells_of_a_bounded_cache() -> None:
    async with running_server() as server:
        bounded, unbounded = await Source.open(server), await Source.open(server)
        await bounded.start(prompt="count")
        await unbounded.start()
        for source in (bounded, unbounded):
            await complete(source, speech(5, seconds=2))
    last, other = (
        [message for message in source.heard if isinstance(message, Progress)][-1]
        for source in (bounded, unbounded)
    )
    assert last.cache is not None
    assert last.cache == replace(COUNTERS, seen_slots=last.cache.seen_slots)
    assert other.cache is None


async def test_a_fast_sender_is_acknowledged_as_it_goes() -> None:
    clock = ManualClock()
    async with running_server(clock=clock, max_unacknowledged_ms=4_000) as server:
        source = await Source.open(server)
        ready = await source.start()
        assert ready.limits.max_unacknowledged_ms == 4_000
        await source.send_audio(silence(seconds=1))
        progress = await source.wait_for(Progress)
        assert progress.received_samples == 16_000
        await source.send_audio(silence(seconds=0.9))
        await complete(source, b"")


async def test_a_flood_is_held_back_and_nothing_of_it_is_lost() -> None:
    recognizer = ScriptedRecognizer()
    recognizer.gate.clear()
    audio = speech(5, seconds=30)
    async with running_server(recognizer, max_backlog_ms=2_000) as server:
        source = await Source.open(server)
        ready = await source.start()
        sending = asyncio.ensure_future(complete(source, audio))
        stream = server.registry._by_name[ready.stream].stream
        await until(lambda: stream.lag_ms > 2_000)
        await settle(1_000)
        assert stream.lag_ms <= 2_000 + 100
        recognizer.gate.set()
        await sending
    assert source.captions == captions_in(undisturbed(audio))


async def test_twenty_streams_at_once_hear_nothing_of_each_other() -> None:
    async with running_server(max_streams=20, max_batch=4) as server:

        async def caption(seed: int) -> Source:
            source = await Source.open(server)
            await source.start(prompt=f"s{seed}.")
            await complete(source, speech(seed, seconds=3))
            return source

        sources = await asyncio.gather(*(caption(seed) for seed in range(20)))
        await has_streams(server, 0, n_kept=0)
    for seed, source in enumerate(sources):
        options = StreamOptions(prompt=f"s{seed}.")
        assert source.captions == captions_in(undisturbed(speech(seed, seconds=3), options))


async def test_one_more_than_there_is_room_for_is_refused() -> None:
    async with running_server(max_streams=2) as server:
        first, second, third = [await Source.open(server) for _ in range(3)]
        await first.start()
        await second.start()
        await third.connection.send(START)
        assert await third.error() == ("full", 1013)
        report = third.heard[-1]
        assert isinstance(report, ErrorReport)
        assert report.retry_after_s == 10
        await complete(first, b"")
        await has_streams(server, 1, n_kept=1)
        fourth = await Source.open(server)
        await fourth.start()


async def test_while_streams_lag_new_ones_are_refused() -> None:
    clock = ManualClock()
    recognizer = ScriptedRecognizer()
    recognizer.gate.clear()
    async with running_server(recognizer, clock=clock, max_live_lag_ms=3_000) as server:
        slow = await Source.open(server)
        ready = await slow.start()
        await slow.send_audio(speech(14, seconds=5))
        stream = server.registry._by_name[ready.stream].stream
        await until(lambda: stream.received_ms == 5_000)
        await clock.advance(4)
        assert server.health()["status"] == "overloaded"
        new = await Source.open(server)
        await new.connection.send(START)
        assert await new.error() == ("overloaded", 1013)
        recognizer.gate.set()
        await complete(slow, b"")
    assert slow.captions == captions_in(undisturbed(speech(14, seconds=5)))
