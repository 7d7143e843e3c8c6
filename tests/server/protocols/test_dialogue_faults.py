from __future__ import annotations

import pytest

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Change,
    Command,
    Finalize,
    Gap,
    Stop,
    Taken,
)
from audiokv.server.refusals import CloseCode
from audiokv.server.request_limit import BURST
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import Done, Ready
from tests.server.doubles import (
    captions_in,
    speech,
    undisturbed,
    until,
)
from tests.server.protocols.parrot import BEGIN, Parrot, rigged
from tests.server.running import Source, has_streams


@pytest.mark.parametrize("command", [Audio(b"ab"), Gap(10), Finalize(), Change("de", None)])
async def test_commands_need_a_stream(command: Command) -> None:
    async with rigged() as rig:
        rig.tell(command)
        await rig.task
        assert rig.sent == ["refused: start_expected"]


async def test_a_stream_begins_once() -> None:
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.tell(BEGIN)
        await rig.task
        assert rig.sent[-1] == "refused: second_start"


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (Begin(AudioFormat(), language="tlh"), "unknown_language"),
        (Begin(AudioFormat(), prompt="x" * 2_001), "bad_field"),
        (Begin(AudioFormat(), channel_labels=("a", "b")), "bad_field"),
    ],
)
async def test_a_stream_that_cannot_be_had_is_refused(begin: Begin, code: str) -> None:
    async with rigged(Parrot(at_open=[begin])) as rig:
        await rig.task
        assert rig.sent == [f"refused: {code}"]
        assert rig.wire.closed is not None
        assert rig.wire.closed[0] == 4400
        assert rig.wire.closed[1] == "ä" * 61  # as much as a close frame can take
        assert rig.server.registry.n_kept == 0


async def test_a_bad_message_ends_the_stream_and_its_viewers_hear_the_rest() -> None:
    audio = speech(5, seconds=1)
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        await until(lambda: bool(rig.parrot.events))
        ready = rig.parrot.events[0]
        assert isinstance(ready, Ready)
        viewer = await Source.watch(rig.server, ready.stream)
        await viewer.wait_for(Ready)
        rig.wire.feed(audio)
        rig.parrot.book["bad"] = MessageError("bad", "m", "r")
        rig.wire.feed("bad")
        await rig.task
        assert rig.sent[-1] == "refused: bad"
        await viewer.wait_for(Done)
        assert [c.text for c in viewer.captions if c.is_final] == [
            c.text for c in captions_in(undisturbed(audio)) if c.is_final
        ]
        await has_streams(rig.server, 0, n_kept=0)


async def test_a_lost_connection_ends_the_stream_at_once() -> None:
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.wire.feed(speech(5, seconds=1))
        await until(lambda: bool(rig.heard(Taken)))
        rig.wire.vanish()
        await rig.task
        await has_streams(rig.server, 0, n_kept=0)


async def test_a_message_that_is_too_large_is_refused() -> None:
    async with rigged(Parrot(at_open=[BEGIN]), max_message_bytes=1_024) as rig:
        rig.wire.feed(bytes(1_025))
        await rig.task
        assert rig.sent == ["refused: message_too_large"]


async def test_requests_are_limited() -> None:
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.tell(*[Finalize()] * (BURST + 1))
        await rig.task
        assert rig.sent == ["refused: too_many_requests"]


@pytest.mark.parametrize("is_broken", [True, False])
async def test_a_fault_of_a_dialect_ends_its_connection_only(
    caplog: pytest.LogCaptureFixture, *, is_broken: bool
) -> None:
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        await until(lambda: bool(rig.parrot.events))
        rig.parrot.is_broken = is_broken
        if is_broken:
            rig.wire.feed(speech(1, seconds=1))
        else:
            rig.parrot.book["bug"] = RuntimeError("secret words")
            rig.wire.feed("bug")
        await until(lambda: rig.wire.closed is not None)
        assert rig.wire.closed is not None
        assert rig.wire.closed[0] == CloseCode.INTERNAL
        rig.parrot.is_broken = False
        source = await Source.open(rig.server)
        await source.start()
    assert "secret" not in caplog.text
    assert "RuntimeError" in caplog.text


async def test_what_comes_after_the_end_is_not_heard() -> None:
    async with rigged() as rig:
        rig.wire.can_close.clear()
        rig.tell(Stop())
        rig.wire.feed("unheard of")
        await until(lambda: not rig.wire.n_unread)
        rig.wire.can_close.set()
        await rig.task
        assert rig.sent == ["bye", "\x00"]


async def test_audio_after_the_stop_is_passed_over() -> None:
    audio = speech(1, seconds=1)
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.tell(Audio(audio), Stop(), Audio(audio), Gap(100))
        await rig.task
        (done,) = rig.heard(Done)
        assert isinstance(done, Done)
        assert done.received_ms == 1_000
