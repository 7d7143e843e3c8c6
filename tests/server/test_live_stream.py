from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.base import StreamOptions
from audiokv.server.live_stream import MAX_PENDING_COMMANDS, LiveStream, StreamRequest
from audiokv.server.outbox import Outbox
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.worker import Command, Job, Report, Request, Worker
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.messages import (
    MAX_METADATA,
    MAX_METADATA_CHARS,
    Done,
    Limits,
    Notice,
    Progress,
    Ready,
    decode_server,
)
from audiokv.streaming.recognition_counts import RecognitionCounts
from tests.server.doubles import COUNTERS, FakeWire, ManualClock, settle

if TYPE_CHECKING:
    from audiokv.streaming.channels import ChannelGroup


class RecordingWorker:
    """Takes commands and does nothing."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def submit(self, job: Job, command: Command) -> None:
        self.commands.append(command)
        job.commands.append(command)

    @property
    def audio(self) -> bytes:
        return b"".join(command for command in self.commands if isinstance(command, bytes))


class Rig:
    """A stream without a worker."""

    def __init__(self, fmt: AudioFormat | None = None) -> None:
        self.worker = RecordingWorker()
        self.clock = ManualClock()
        self.over: list[LiveStream] = []
        self.wire = FakeWire()
        self.stream = LiveStream(
            StreamRequest("s-1", fmt or AudioFormat(), StreamOptions()),
            worker=cast("Worker", self.worker),
            open_session=lambda: cast("ChannelGroup", None),
            clock=self.clock,
            on_over=self.over.append,
        )

    async def heard(self) -> list[object]:
        source = self.stream.hub.source
        assert isinstance(source, Outbox)
        source.finish(CloseCode.DONE, "done")
        await source.pump()
        return [decode_server(packed.decode()) for packed in self.wire.sent[1:]]

    def attach(self) -> None:
        ready = Ready("s-1", "m", (), Limits(1, 1, 1, 1))
        self.stream.hub.attach_source(Outbox(self.wire, self.clock), ready, 0)


FORMATS = [
    AudioFormat(),
    AudioFormat(Encoding.PCM_F32LE, 48_000, 2),
    AudioFormat(Encoding.MULAW, 8_000),
]


@pytest.mark.parametrize("fmt", FORMATS)
@given(audio=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400)))
def test_only_whole_samples_are_held_however_bytes_are_split(
    fmt: AudioFormat, audio: bytes, cuts: list[int]
) -> None:
    rig = Rig(fmt)
    edges = [0, *sorted(cuts), len(audio)]
    for start, end in pairwise(edges):
        rig.stream.accept(audio[start:end])
    n_whole = len(audio) // fmt.frame_bytes
    assert rig.worker.audio == audio[: n_whole * fmt.frame_bytes]
    assert all(
        len(command) % fmt.frame_bytes == 0
        for command in rig.worker.commands
        if isinstance(command, bytes)
    )
    assert rig.stream.received_samples == n_whole
    assert rig.stream.received_ms == n_whole * 1000 // fmt.sample_rate_hz


def test_half_a_sample_is_forgotten_with_its_connection() -> None:
    rig = Rig()
    rig.stream.accept(b"aab")
    rig.stream.drop_part()
    rig.stream.accept(b"ccdd")
    assert rig.worker.audio == b"aaccdd"
    assert rig.stream.received_samples == 3


def test_requests_reach_the_worker_and_stop_only_once() -> None:
    rig = Rig()
    options = StreamOptions(language="de")
    rig.stream.update(options)
    rig.stream.finalize()
    rig.stream.stop()
    rig.stream.stop()
    assert rig.worker.commands == [options, Request.FINALIZE, Request.STOP]
    assert rig.stream.options is options


async def test_the_end_is_told_with_its_length() -> None:
    rig = Rig()
    rig.attach()
    rig.stream.accept(bytes(32_000))
    rig.stream.take_report(Report((), 500))
    assert rig.stream.progress() == Progress(1_000, 16_000, 500, 500)
    rig.stream.take_report(Report((), 1_000, is_done=True))
    rig.stream.take_report(Report((), 1_000, is_done=True))
    assert await rig.heard() == [Progress(1_000, 16_000, 1_000, 0), Done(1_000, 0)]
    assert rig.over == [rig.stream]
    assert not rig.stream.has_failed


async def test_progress_has_the_latest_state_of_the_cache() -> None:
    rig = Rig()
    assert rig.stream.progress().cache is None
    rig.stream.take_report(Report((), 0, cache=COUNTERS))
    rig.stream.take_report(Report((), 100))
    assert rig.stream.progress() == Progress(0, 0, 100, 0, COUNTERS)


async def test_progress_tells_what_went_wrong_with_the_recognition() -> None:
    rig = Rig()
    counts = RecognitionCounts(1, 3, 2)
    rig.stream.take_report(Report((), 0, recognition=counts))
    rig.stream.take_report(Report((), 100))
    assert rig.stream.progress() == Progress(0, 0, 100, 0, recognition=counts)


async def test_a_failure_is_told() -> None:
    rig = Rig()
    rig.attach()
    rig.stream.take_report(Report((), 0, failure=RefusalError(CloseCode.BAD_AUDIO, "c", "m", "r")))
    assert rig.over == [rig.stream]
    assert rig.stream.has_failed
    await rig.heard()
    assert rig.wire.closed == (1003, "c")


async def test_reading_waits_while_the_backlog_is_large() -> None:
    rig = Rig()
    rig.stream.accept(bytes(2 * 16 * 1_000))
    await asyncio.wait_for(rig.stream.room(1_000), 5)
    rig.stream.accept(bytes(2 * 16 * 500))
    waiting = asyncio.ensure_future(rig.stream.room(1_000))
    await settle()
    rig.stream.take_report(Report((), 400))
    await settle()
    assert not waiting.done()
    rig.stream.take_report(Report((), 500))
    await asyncio.wait_for(waiting, 5)


async def test_reading_waits_while_too_many_commands_wait() -> None:
    rig = Rig()
    for _ in range(MAX_PENDING_COMMANDS + 1):
        rig.stream.finalize()
    waiting = asyncio.ensure_future(rig.stream.room(1_000))
    await settle()
    assert not waiting.done()
    rig.stream._job.commands.clear()
    rig.stream.take_report(Report((), 0))
    await asyncio.wait_for(waiting, 5)


async def test_nobody_waits_for_a_stream_that_was_dropped() -> None:
    rig = Rig()
    rig.stream.accept(bytes(2 * 16 * 5_000))
    waiting = asyncio.ensure_future(rig.stream.room(1_000))
    await settle()
    rig.stream.drop()
    await asyncio.wait_for(waiting, 5)
    assert rig.worker.commands[-1] is Request.DROP
    assert rig.over == []


async def test_live_lag_is_that_of_real_time_and_not_of_a_file_sent_ahead() -> None:
    rig = Rig()
    rig.stream.accept(bytes(2 * 16 * 20_000))
    assert rig.stream.lag_ms == 20_000
    assert rig.stream.live_lag_ms == 0
    await rig.clock.advance(9)
    assert rig.stream.live_lag_ms == 9_000
    rig.stream.take_report(Report((), 8_000))
    assert rig.stream.live_lag_ms == 1_000
    await rig.clock.advance(100)
    assert rig.stream.live_lag_ms == rig.stream.lag_ms == 12_000


async def test_a_wrong_rate_is_told_to_the_source() -> None:
    rig = Rig()
    rig.attach()
    for _ in range(1_500):
        rig.stream.accept(bytes(160))  # 80 samples every 10 ms: 8 kHz
        rig.clock._now_s += 0.01
    notices = [message for message in await rig.heard() if isinstance(message, Notice)]
    assert [notice.code for notice in notices] == ["rate_mismatch"]


@pytest.mark.parametrize(
    ("encoding", "byte"),
    [
        (Encoding.PCM_S16LE, 0),
        (Encoding.PCM_F32LE, 0),
        (Encoding.MULAW, 0xFF),
        (Encoding.ALAW, 0xD5),
    ],
)
async def test_a_gap_is_silence_of_its_length_and_is_told(encoding: Encoding, byte: int) -> None:
    fmt = AudioFormat(encoding, 8_000, 2)
    rig = Rig(fmt)
    rig.attach()
    rig.stream.accept(bytes(fmt.bytes_per_second + 1))
    rig.stream.lose(250)
    rig.stream.accept(b"x" * fmt.frame_bytes)
    gap = bytes([byte]) * (2_000 * fmt.frame_bytes)
    assert rig.worker.audio[fmt.bytes_per_second :] == gap + b"x" * fmt.frame_bytes
    assert rig.stream.received_ms == 1_250
    (notice,) = await rig.heard()
    assert isinstance(notice, Notice)
    assert notice.code == "audio_gap"
    assert "250 ms" in notice.message
    assert "1000" in notice.message


def test_whoever_finalizes_hears_when_all_was_said() -> None:
    rig = Rig()
    heard: list[str] = []
    rig.stream.finalize(lambda: heard.append("first"))
    rig.stream.finalize()
    rig.stream.finalize(lambda: heard.append("third"))
    assert rig.worker.commands == [Request.FINALIZE] * 3
    rig.stream.take_report(Report((), 10, n_finalized=1))
    assert heard == ["first"]
    rig.stream.take_report(Report((), 10, n_finalized=1))
    rig.stream.take_report(Report((), 20, n_finalized=3))
    assert heard == ["first", "third"]


def test_news_from_the_worker_are_told_after_they_were_heard() -> None:
    rig = Rig()
    moved: list[int] = []
    rig.stream.on_moved = lambda: moved.append(rig.stream.processed_ms)
    rig.stream.take_report(Report((), 10))
    rig.stream.take_report(Report((), 30))
    assert moved == [10, 30]


async def test_only_audio_before_its_time_is_ahead() -> None:
    rig = Rig()
    rig.stream.accept(bytes(32 * 2_000))
    assert rig.stream.ahead_ms == 2_000
    waiting = asyncio.ensure_future(rig.stream.room(30_000, max_ahead_ms=500))
    await settle()
    assert not waiting.done()
    await rig.clock.advance(1)
    assert rig.stream.ahead_ms == 1_000
    rig.stream.take_report(Report((), 1_500))
    await waiting
    assert rig.stream.ahead_ms == 500
    await rig.clock.advance(2)
    assert rig.stream.ahead_ms == 0
    await rig.stream.room(30_000, max_ahead_ms=0)


def test_metadata_stays_with_the_stream() -> None:
    rig = Rig()
    assert rig.stream.metadata == {}
    request = StreamRequest("s-1", AudioFormat(), StreamOptions(), {"call": "42"})
    stream = LiveStream(
        request,
        worker=cast("Worker", rig.worker),
        open_session=lambda: cast("ChannelGroup", None),
        clock=rig.clock,
        on_over=rig.over.append,
    )
    assert stream.metadata == {"call": "42"}


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({}, None),
        ({"call": "42"}, {"call": "42"}),
        ({"n" * 3_000: "v" * 3_000}, {"n" * MAX_METADATA_CHARS: "v" * MAX_METADATA_CHARS}),
        ({str(n): "" for n in range(99)}, {str(n): "" for n in range(MAX_METADATA)}),
    ],
)
def test_listeners_are_told_no_more_than_they_take(
    metadata: dict[str, str], told: dict[str, str] | None
) -> None:
    rig = Rig()
    rig.stream.metadata = metadata
    assert rig.stream.told == told
