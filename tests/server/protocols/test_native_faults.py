from __future__ import annotations

import asyncio
import struct

import pytest

from audiokv.server.request_limit import BURST
from audiokv.streaming.messages import (
    Finalize,
    Keepalive,
    Progress,
    Ready,
    Resume,
    Start,
    Stop,
    Update,
    encode,
)
from tests.server.doubles import (
    ManualClock,
    ScriptedRecognizer,
    captions_in,
    settle,
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

START = encode(Start("pcm_s16le", 16_000))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"\x00" * 320, ("start_expected", 4400)),
        ("hello", ("bad_json", 4400)),
        ("[]", ("bad_message", 4400)),
        ('{"type": "stop"}', ("start_expected", 4400)),
        ('{"type": "begin"}', ("unknown_type", 4400)),
        ('{"type": "start"}', ("missing_field", 4400)),
        (START[:-1] + ',"codec":1}', ("unknown_field", 4400)),
        (encode(Start("mp3", 16_000)), ("unknown_encoding", 1003)),
        (encode(Start("pcm_s16le", 1)), ("bad_sample_rate", 1003)),
        (encode(Start("pcm_s16le", 9_999_999)), ("bad_sample_rate", 1003)),
        (encode(Start("pcm_s16le", 16_000, channels=9)), ("bad_channels", 1003)),
        (encode(Start("pcm_s16le", 16_000, language="xx")), ("unknown_language", 4400)),
        (encode(Start("pcm_s16le", 16_000, profile="opera")), ("unknown_profile", 4400)),
        (
            encode(Start("pcm_s16le", 16_000, resume=Resume("r-unknown", 0))),
            ("unknown_resume", 4400),
        ),
        ("x" * 70_000, ("message_too_large", 1009)),
    ],
)
async def test_a_wrong_first_message_is_explained(
    message: str | bytes, expected: tuple[str, int]
) -> None:
    async with running_server() as server:
        source = await Source.open(server)
        await source.connection.send(message)
        assert await source.error() == expected
        assert server.registry.n_kept == 0


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("text where audio is due", ("bad_json", 4400)),
        (START, ("second_start", 4400)),
        ('{"type": "dance"}', ("unknown_type", 4400)),
        ('{"type": "stop", "now": 1}', ("unknown_field", 4400)),
        (encode(Update(language="xx")), ("unknown_language", 4400)),
        (bytes(65_537), ("message_too_large", 1009)),
        (struct.pack("<4f", 0, float("nan"), 0, 0), None),
    ],
)
async def test_a_fault_is_explained_and_harms_nobody_else(
    message: str | bytes, expected: tuple[str, int] | None
) -> None:
    audio = speech(10, seconds=2)
    async with running_server() as server:
        good, bad = await Source.open(server), await Source.open(server)
        await good.start()
        await good.send_audio(audio[:30_000])
        await bad.send(Start("pcm_f32le", 16_000))
        await bad.wait_for(Ready)
        await bad.connection.send(message)
        code, close_code = await bad.error()
        assert (code, close_code) == expected if expected else close_code == 1003
        await complete(good, audio[30_000:])
    assert good.captions == captions_in(undisturbed(audio))


async def test_audio_after_stop_is_a_fault() -> None:
    recognizer = ScriptedRecognizer()
    recognizer.gate.clear()
    async with running_server(recognizer) as server:
        source = await Source.open(server)
        await source.start()
        await source.send_audio(speech(11, seconds=1))
        await source.send(Stop())
        await source.send_audio(bytes(320))
        assert await source.error() == ("audio_after_stop", 4400)
        recognizer.gate.set()


async def test_an_absurdly_large_message_closes_with_1009() -> None:
    async with running_server() as server:
        source = await Source.open(server)
        await source.start()
        await source.connection.send(bytes(2_000_000))
        code, _ = await source.rest()
        assert code == 1009


async def test_a_source_that_does_not_start_is_closed() -> None:
    clock = ManualClock()
    async with running_server(clock=clock, start_timeout_s=10) as server:
        source = await Source.open(server)
        await until(lambda: clock.n_waiting > 0)
        await clock.advance(10)
        assert await source.error() == ("no_start", 4408)


async def test_an_idle_source_is_closed_and_may_come_back() -> None:
    clock = ManualClock()
    async with running_server(clock=clock, idle_timeout_s=5) as server:
        source = await Source.open(server)
        ready = await source.start()
        dialogue_heard = asyncio.ensure_future(_count_progress(source, 9))
        for second in range(9):
            if second == 4:
                await source.send(Keepalive())
                await _was_read(source)
            await clock.advance(1)
        await dialogue_heard
        await clock.advance(1)
        assert await source.error() == ("idle", 4408)
        again = await Source.open(server)
        assert (await again.resume(ready.resume_token, 0)).resumed


async def _count_progress(source: Source, count: int) -> None:
    for _ in range(count):
        await source.wait_for(Progress)


async def _was_read(source: Source) -> None:
    """Wait for the answer to a ping: everything sent before it has been read."""
    await (await source.connection.ping())
    await settle()


async def test_a_half_open_connection_is_cut_off() -> None:
    clock = ManualClock()
    async with running_server(clock=clock, idle_timeout_s=5) as server:
        source = await Source.open(server)
        await source.start()
        source.pause_reading()  # it takes nothing in, and answers nothing
        await clock.advance(6)
        await clock.advance(3)
        await has_no_connections(server)
        assert server.registry.n_streams == 1
        await clock.advance(60)
        await has_streams(server, 0, n_kept=0)


async def test_a_source_that_vanishes_in_mid_word_leaves_nothing_behind() -> None:
    clock = ManualClock()
    async with running_server(clock=clock) as server:
        source = await Source.open(server)
        await source.start()
        await source.send_audio(speech(12, seconds=1)[:20_001])
        source.connection.transport.abort()
        await has_no_connections(server)
        await clock.advance(60)
        await has_streams(server, 0, n_kept=0)
        assert server.health()["streams"] == 0


@pytest.mark.parametrize("prompt", ["break", "refuse to open"])
async def test_a_failing_session_ends_alone_and_its_words_stay_out_of_the_log(
    prompt: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    audio = speech(13, seconds=2)
    async with running_server(max_batch=2) as server:
        good, bad = await Source.open(server), await Source.open(server)
        await good.start()
        ready = await bad.start(prompt=prompt)
        viewer = await Source.watch(server, ready.stream)
        await viewer.wait_for(Ready)
        await bad.send_audio(audio)
        assert await bad.error() == ("internal", 1011)
        assert await viewer.error() == ("stream_failed", 1011)
        await complete(good, audio)
        await has_streams(server, 0, n_kept=0)
    assert good.captions == captions_in(undisturbed(audio))
    assert f"stream {ready.stream} failed: RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    assert good.captions[-1].words[0].text not in caplog.text


async def test_faulty_sources_do_not_fill_the_server() -> None:
    async with running_server(max_streams=2) as server:
        for _ in range(5):
            bad = await Source.open(server)
            await bad.start()
            await bad.connection.send("text where audio is due")
            assert await bad.error() == ("bad_json", 4400)
            await has_no_connections(server)
        good = await Source.open(server)
        await good.start()
        await complete(good, b"")


@pytest.mark.parametrize("message", [Finalize(), Update(prompt="Ж" * 500)])
async def test_a_flood_of_requests_is_refused_and_harms_nobody_else(
    message: Finalize | Update,
) -> None:
    clock = ManualClock()
    audio = speech(14, seconds=2)
    async with running_server(clock=clock) as server:
        good, bad = await Source.open(server), await Source.open(server)
        await good.start()
        await bad.start()
        for _ in range(BURST + 1):
            await bad.send(message)
        assert await bad.error() == ("too_many_requests", 1008)
        await complete(good, audio)
    assert good.captions == captions_in(undisturbed(audio))
