from __future__ import annotations

from audiokv.server.outbox import Outbox
from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Change,
    Finalize,
    Finalized,
    Gap,
    Opening,
    Reply,
    Stop,
    Taken,
)
from audiokv.server.protocols.dialogue import CHECK_EVERY_S, GAP_PIECE_MS, DialectListener
from audiokv.server.wire import Binary, pack
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.messages import Done, Limits, Notice, Progress, Ready
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
from tests.server.protocols.parrot import BEGIN, Parrot, rigged
from tests.server.running import Source, has_streams

# Commands


async def test_a_stream_from_its_opening_to_its_last_word() -> None:
    audio = speech(1, seconds=3)
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.wire.feed(audio[: len(audio) // 2])
        rig.wire.feed(audio[len(audio) // 2 :])
        rig.tell(Stop())
        await rig.task
        assert rig.parrot.opening == Opening("/parrot")
        assert isinstance(rig.parrot.events[0], Ready)
        assert isinstance(rig.parrot.events[-1], Done)
        said = captions_in(rig.parrot.events)
        assert said == captions_in(undisturbed(audio))
        assert rig.sent == [*(c.text for c in said if c.is_final), "bye", "\x00"]
        assert isinstance(rig.wire.sent[-1], Binary)
        assert not isinstance(rig.wire.sent[-2], Binary)
        assert rig.wire.closed == (1000, "finished")
        await has_streams(rig.server, 0, n_kept=0)


async def test_replies_keep_their_place_among_the_words() -> None:
    async with rigged() as rig:
        rig.tell(Reply("one"), Begin(AudioFormat()), Reply(b"two"))
        await until(lambda: len(rig.wire.sent) == 2)
        assert rig.sent == ["one", "two"]
        assert isinstance(rig.parrot.events[0], Ready)


async def test_each_audio_is_answered_and_progress_comes_before() -> None:
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        for n_messages in (1, 2):
            rig.wire.feed(bytes(320))
            await until(lambda n=n_messages: len(rig.heard(Taken)) == n)  # type: ignore[misc]
        before = rig.parrot.events[rig.parrot.events.index(Taken()) - 1]
        assert isinstance(before, Progress)
        assert before.received_ms == 10


async def test_progress_comes_as_recognition_moves_on_without_more_audio() -> None:
    audio = speech(1, seconds=1) + silence(seconds=1)
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.wire.feed(audio)

        def is_decided() -> bool:
            moved = rig.heard(Progress)
            return any(isinstance(e, Progress) and e.processed_ms >= 1_900 for e in moved)

        await until(is_decided)
        assert len(rig.heard(Taken)) == 1


async def test_finalizing_is_answered_once_all_was_said() -> None:
    audio = speech(2, seconds=1)
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.wire.feed(audio)
        rig.tell(Finalize())
        rig.tell(Finalize())
        await until(lambda: len(rig.heard(Finalized)) == 2)
        kinds = [type(event) for event in rig.parrot.events]
        last_caption = rig.parrot.events.index(captions_in(rig.parrot.events)[-1])
        assert captions_in(rig.parrot.events)[-1].is_final
        assert last_caption < kinds.index(Finalized)


async def test_wishes_change_in_mid_stream() -> None:
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.tell(Change("de", "Anna"))
        rig.wire.feed(speech(1, seconds=1))
        rig.tell(Stop())
        await rig.task
        assert all(c.text.startswith("Anna") for c in captions_in(rig.parrot.events) if c.is_final)
        assert captions_in(rig.parrot.events)[-1].language == "de"


async def test_a_gap_keeps_the_clock_true_and_is_told() -> None:
    audio = speech(3, seconds=1)
    gap_ms = 2 * GAP_PIECE_MS + 500
    async with rigged(Parrot(at_open=[BEGIN])) as rig:
        rig.wire.feed(audio)
        rig.tell(Gap(gap_ms))
        rig.wire.feed(audio)
        rig.tell(Stop())
        await rig.task
        filled = audio + silence(seconds=gap_ms / 1000) + audio
        assert captions_in(rig.parrot.events) == captions_in(undisturbed(filled))
        assert [e.code for e in rig.heard(Notice) if isinstance(e, Notice)] == ["audio_gap"] * 3
        done = rig.parrot.events[-1]
        assert done == Done(len(filled) // 32, done.segments if isinstance(done, Done) else 0)


async def test_what_a_stream_begins_with_reaches_it() -> None:
    begin = Begin(AudioFormat(sample_rate_hz=8_000), "de", "Anna", metadata={"call": "42"})
    async with rigged(Parrot(at_open=[begin])) as rig:
        await until(lambda: bool(rig.parrot.events))
        (entry,) = rig.server.registry._by_name.values()
        assert entry.stream.fmt == begin.fmt
        assert entry.stream.options.language == "de"
        assert entry.stream.options.prompt == "Anna"
        assert entry.stream.metadata == {"call": "42"}
        viewer = await Source.watch(rig.server, entry.stream.name)
        assert (await viewer.wait_for(Ready)).metadata == {"call": "42"}


async def test_stopping_without_a_stream_just_closes() -> None:
    async with rigged() as rig:
        rig.tell(Stop())
        await rig.task
        assert rig.sent == ["bye", "\x00"]
        assert rig.wire.closed == (1000, "finished")


async def test_a_file_is_taken_no_faster_than_it_is_recognised_where_asked() -> None:
    recognizer = ScriptedRecognizer()
    audio = speech(4, seconds=1)
    async with rigged(Parrot(at_open=[BEGIN]), recognizer) as rig:
        recognizer.gate.clear()
        rig.tell(Audio(audio, max_ahead_ms=500), Reply("taken"))
        await until(recognizer.is_asked.is_set)
        await settle()
        assert rig.sent == []
        recognizer.gate.set()
        await until(lambda: "taken" in rig.sent)


async def test_live_audio_is_taken_at_once_however_late_recognition_is() -> None:
    recognizer = ScriptedRecognizer()
    async with rigged(Parrot(at_open=[BEGIN]), recognizer) as rig:
        await until(lambda: bool(rig.parrot.events))
        await rig.clock.advance(1)
        recognizer.gate.clear()
        rig.tell(Audio(speech(4, seconds=1), max_ahead_ms=500), Reply("taken"))
        await until(lambda: "taken" in rig.sent)
        recognizer.gate.set()


def test_captions_said_before_are_told_first() -> None:
    parrot = Parrot()
    outbox = Outbox(FakeWire(), ManualClock())
    past = captions_in(undisturbed(speech(1, seconds=3)))
    ready = Ready("s-1", "m", (), Limits(1, 1, 1, 1))
    DialectListener(parrot, outbox, "test").begin(ready, [pack(caption) for caption in past])
    assert parrot.events == [ready, *past]
    assert outbox.waiting_bytes == sum(len(c.text) for c in past if c.is_final)


# Time


async def test_silence_for_too_long_ends_the_connection() -> None:
    parrot = Parrot(at_open=[BEGIN])
    parrot.idle_timeout_s = 5
    async with rigged(parrot, idle_timeout_s=60) as rig:
        await rig.clock.advance(4)
        rig.wire.feed(bytes(320))
        await settle()
        await rig.clock.advance(5)
        assert rig.sent == []
        await rig.clock.advance(2 * CHECK_EVERY_S)
        await rig.task
        assert rig.sent == ["refused: idle"]


async def test_without_a_limit_of_its_own_a_dialect_has_the_servers() -> None:
    async with rigged(idle_timeout_s=3) as rig:
        await rig.clock.advance(3)
        assert rig.sent == []
        await rig.clock.advance(2 * CHECK_EVERY_S)
        await rig.task
        assert rig.sent == ["refused: idle"]


async def test_ticks_come_regularly_until_the_end() -> None:
    parrot = Parrot()
    parrot.tick_every_s = 0.5
    async with rigged(parrot) as rig:
        await rig.clock.advance(1.6)
        assert rig.sent == ["tick"] * 3
        rig.tell(Stop())
        await rig.task
        await rig.clock.advance(1)
        assert rig.sent == [*["tick"] * 3, "bye", "\x00"]
