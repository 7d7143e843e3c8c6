from __future__ import annotations

import pytest

from audiokv.server.protocols.native import VIEWER_PROGRESS_EVERY_S
from audiokv.streaming.captions import Caption
from audiokv.streaming.messages import (
    Done,
    Finalize,
    Keepalive,
    Progress,
    Ready,
    Start,
    Stop,
    encode,
)
from tests.server.doubles import (
    ManualClock,
    captions_in,
    speech,
    undisturbed,
    until,
)
from tests.server.running import (
    Source,
    complete,
    has_streams,
    running_server,
    shrink_buffers,
    small_socket,
)

START = encode(Start("pcm_s16le", 16_000))


async def test_viewers_see_what_the_source_sees_and_late_ones_all_finals() -> None:
    audio = speech(15, seconds=8)
    half = len(audio) // 2
    async with running_server() as server:
        source = await Source.open(server)
        ready = await source.start()
        early = await Source.watch(server, ready.stream)
        assert (await early.wait_for(Ready)).resume_token is None
        await source.send_audio(audio[:half])
        await source.wait_for(Caption, lambda caption: caption.is_final)
        late = await Source.watch(server, ready.stream)
        await late.wait_for(Ready)
        await source.send_audio(audio[half:])
        await source.send(Stop())
        for listener in (source, early, late):
            assert await listener.rest() == (1000, "done")
        await has_streams(server, 0, n_kept=0)
    expected = captions_in(undisturbed(audio))
    assert source.captions == early.captions == expected
    assert [c for c in late.captions if c.is_final] == [c for c in expected if c.is_final]
    assert [c.seq for c in late.captions] == sorted({c.seq for c in late.captions})
    assert early.heard[-1] == late.heard[-1] == source.heard[-1]


async def test_a_viewer_that_reads_nothing_is_cut_off_and_holds_nobody_up() -> None:
    audio = speech(16, seconds=3)
    async with running_server() as server:
        shrink_buffers(server)
        source = await Source.open(server)
        ready = await source.start(prompt="x" * 400)
        viewer = await Source.watch(server, ready.stream, sock=await small_socket(server))
        await viewer.wait_for(Ready)
        viewer.pause_reading()
        n_rounds = 0
        while server.registry.n_viewers:
            await source.send_audio(audio)
            await source.send(Finalize())
            n_rounds += 1
            await source.wait_for(Caption, lambda caption: caption.is_final)
        await complete(source, audio)
    finals = [caption.segment for caption in source.captions if caption.is_final]
    assert finals == list(range(len(finals)))
    assert n_rounds > 3


@pytest.mark.parametrize("message", [bytes(320), encode(Stop()), "hello"])
async def test_a_viewer_may_only_watch(message: str | bytes) -> None:
    async with running_server() as server:
        source = await Source.open(server)
        ready = await source.start()
        viewer = await Source.watch(server, ready.stream)
        await viewer.send(Keepalive())
        await viewer.connection.send(message)
        code, close_code = await viewer.error()
        assert (code, close_code) in {("viewer_only", 4400), ("bad_json", 4400)}
        await until(lambda: server.registry.n_viewers == 0)
        await complete(source, b"")


async def test_a_stream_that_does_not_exist_cannot_be_watched() -> None:
    async with running_server() as server:
        viewer = await Source.watch(server, "s-unknown")
        assert await viewer.error() == ("unknown_stream", 4400)


async def test_an_error_of_our_own_closes_one_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def fail(*_: object) -> None:
        raise RuntimeError("secret words")

    async with running_server() as server:
        monkeypatch.setattr(server.registry, "open", fail)
        source = await Source.open(server)
        await source.connection.send(START)
        assert await source.error() == ("internal", 1011)
        monkeypatch.undo()
        other = await Source.open(server)
        await other.start()
    assert "failed: RuntimeError at test_native_viewers.py" in caplog.text
    assert "secret" not in caplog.text


async def test_a_viewer_hears_something_also_while_nobody_speaks() -> None:
    clock = ManualClock()
    async with running_server(clock=clock) as server:
        source = await Source.open(server)
        ready = await source.start()
        viewer = await Source.watch(server, ready.stream)
        await viewer.wait_for(Ready)
        for _ in range(3):
            await until(lambda: clock.n_waiting >= 2)
            await clock.advance(VIEWER_PROGRESS_EVERY_S)
            assert (await viewer.wait_for(Progress)).received_ms == 0
        await source.send(Stop())
        assert await viewer.rest() == (1000, "done")
    assert [type(message) for message in viewer.heard] == [
        Ready,
        Progress,
        Progress,
        Progress,
        Done,
    ]
    assert clock.n_waiting == 0
