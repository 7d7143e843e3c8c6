from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from audiokv.models.base import StreamOptions
from audiokv.server.config import ServerConfig
from audiokv.server.outbox import Outbox
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.stream_registry import MIN_AWAY_S, StreamRegistry
from audiokv.server.worker import Report, Request, Worker
from audiokv.streaming.errors import AudioFormatError, MessageError
from audiokv.streaming.messages import Ready, Resume, Start, Update, decode_server
from tests.server.doubles import INFO, FakeWire, ManualClock
from tests.server.test_live_stream import RecordingWorker

if TYPE_CHECKING:
    from audiokv.server.live_stream import LiveStream
    from audiokv.streaming.channels import ChannelGroup

START = Start("pcm_s16le", 16_000)
DONE = Report((), 0, is_done=True)


class Rig:
    """A registry without a worker."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.worker = RecordingWorker()
        self.registry = StreamRegistry(
            config=ServerConfig(**{"max_streams": 2, "resume_window_s": 60, **settings}),
            info=INFO,
            worker=cast("Worker", self.worker),
            open_session=lambda *_: cast("ChannelGroup", None),
            clock=self.clock,
        )

    def outbox(self) -> Outbox:
        return Outbox(FakeWire(), self.clock)

    def open(self) -> tuple[LiveStream, Outbox]:
        outbox = self.outbox()
        return self.registry.open(START, outbox), outbox

    def counts(self) -> tuple[int, int, int]:
        return self.registry.n_streams, self.registry.n_kept, self.registry.n_viewers


async def greeting(outbox: Outbox) -> Ready:
    outbox.finish(CloseCode.GOING_AWAY, "end of test")
    await outbox.pump()
    wire = cast("FakeWire", outbox._wire)
    ready = decode_server(wire.sent[0].decode())
    assert isinstance(ready, Ready)
    return ready


async def token_of(stream: LiveStream, rig: Rig) -> str:
    (token,) = [t for t, entry in rig.registry._by_token.items() if entry.stream is stream]
    return token


async def test_a_stream_is_greeted_with_its_names_and_limits() -> None:
    rig = Rig(idle_timeout_s=5)
    stream, outbox = rig.open()
    ready = await greeting(outbox)
    assert ready.stream == stream.name
    assert ready.resume_token
    assert ready.languages == ("de", "en")
    assert ready.limits.idle_timeout_s == 5
    assert not ready.resumed
    assert rig.counts() == (1, 1, 0)


def test_wishes_are_checked_and_add_up() -> None:
    registry = Rig().registry
    known = StreamOptions(language="de", prompt="Anna")
    assert registry.options_of(Update(), known) == known
    assert registry.options_of(Update(language="auto"), known).language is None
    assert registry.options_of(Update(prompt=""), known) == StreamOptions(language="de")
    assert registry.options_of(Start("alaw", 8_000, language="en"), StreamOptions()) == (
        StreamOptions(language="en")
    )
    with pytest.raises(MessageError, match="'xx'") as caught:
        registry.options_of(Update(language="xx"), known)
    assert caught.value.code == "unknown_language"
    with pytest.raises(MessageError, match="'opera'") as caught:
        registry.options_of(Update(profile="opera"), known)
    assert caught.value.code == "unknown_profile"


def test_a_profile_is_that_of_the_policy_and_stays() -> None:
    registry = Rig().registry
    known = registry.options_of(Start("alaw", 8_000, profile="telephony"), StreamOptions())
    assert known.profile == "telephony"
    assert registry.options_of(Update(profile="telephony"), known) == known
    with pytest.raises(MessageError, match="'telephony'") as caught:
        registry.options_of(Update(profile="default"), known)
    assert caught.value.code == "profile_fixed"


def test_audio_that_cannot_be_decoded_takes_no_place() -> None:
    rig = Rig()
    with pytest.raises(AudioFormatError):
        rig.registry.open(Start("mp3", 16_000), rig.outbox())
    assert rig.counts() == (0, 0, 0)


def test_one_more_than_there_is_room_for_is_refused_with_a_hint() -> None:
    rig = Rig()
    rig.open()
    rig.open()
    with pytest.raises(RefusalError) as caught:
        rig.open()
    assert (caught.value.code, caught.value.close_code) == ("full", 1013)
    assert caught.value.retry_after_s


async def test_streams_that_lag_keep_new_ones_out() -> None:
    rig = Rig(max_live_lag_ms=2_000)
    stream, _ = rig.open()
    stream.accept(bytes(2 * 16 * 5_000))
    await rig.clock.advance(2.5)
    assert rig.registry.is_overloaded
    with pytest.raises(RefusalError) as caught:
        rig.open()
    assert (caught.value.code, caught.value.close_code) == ("overloaded", 1013)
    stream.take_report(Report((), 2_000))
    rig.open()


async def test_a_source_that_comes_back_gets_its_stream() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    token = await token_of(stream, rig)
    stream.accept(bytes(321))
    rig.registry.leave(stream, outbox, is_delivered=False)
    await rig.clock.advance(59)
    second = rig.outbox()
    assert rig.registry.resume(START, Resume(token, 0), second) is stream
    await rig.clock.advance(120)
    ready = await greeting(second)
    assert ready.resumed
    assert ready.resume_token == token
    assert ready.received_samples == 160
    assert rig.counts() == (1, 1, 0)
    assert rig.clock.n_waiting == 0


async def test_leaving_after_another_took_over_changes_nothing() -> None:
    rig = Rig()
    stream, first = rig.open()
    second = rig.outbox()
    rig.registry.resume(START, Resume(await token_of(stream, rig), 0), second)
    rig.registry.leave(stream, first, is_delivered=False)
    assert stream.hub.source is second
    assert rig.clock.n_waiting == 0


async def test_a_source_that_stays_away_ends_its_stream() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    token = await token_of(stream, rig)
    viewer = rig.outbox()
    rig.registry.watch(stream.name, viewer)
    rig.registry.leave(stream, outbox, is_delivered=False)
    await rig.clock.advance(60)
    assert rig.worker.commands == [Request.STOP]
    with pytest.raises(RefusalError) as caught:
        rig.registry.resume(START, Resume(token, 0), rig.outbox())
    assert (caught.value.code, caught.value.close_code) == ("unknown_resume", 4400)
    stream.take_report(DONE)
    stream.hub.detach_viewer(viewer)
    assert rig.counts() == (0, 0, 0)


async def test_the_end_waits_for_a_source_that_missed_it() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    token = await token_of(stream, rig)
    stream.stop()
    stream.take_report(DONE)
    assert rig.counts() == (0, 1, 0)
    rig.registry.leave(stream, outbox, is_delivered=False)
    second = rig.outbox()
    rig.registry.resume(START, Resume(token, 0), second)
    assert second.is_ending
    rig.registry.leave(stream, second, is_delivered=True)
    assert rig.counts() == (0, 0, 0)


async def test_an_end_that_nobody_fetches_is_forgotten() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    stream.take_report(DONE)
    rig.registry.leave(stream, outbox, is_delivered=False)
    await rig.clock.advance(60)
    assert rig.counts() == (0, 0, 0)
    assert rig.worker.commands == []


async def test_ends_that_nobody_fetches_are_bounded() -> None:
    rig = Rig(max_streams=1)
    for _ in range(20):
        stream, outbox = rig.open()
        stream.take_report(DONE)
        rig.registry.leave(stream, outbox, is_delivered=False)
    assert rig.registry.n_kept <= 5


async def test_a_stream_that_failed_is_gone_at_once() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    token = await token_of(stream, rig)
    failure = RefusalError(CloseCode.INTERNAL, "internal", "m", "r")
    stream.take_report(Report((), 0, failure=failure))
    rig.registry.leave(stream, outbox, is_delivered=True)
    assert rig.counts() == (0, 0, 0)
    with pytest.raises(RefusalError):
        rig.registry.resume(START, Resume(token, 0), rig.outbox())


async def test_a_stream_long_without_its_source_gives_way() -> None:
    rig = Rig()
    (old, old_outbox), (young, young_outbox) = rig.open(), rig.open()
    viewer = rig.outbox()
    rig.registry.watch(old.name, viewer)
    rig.registry.leave(old, old_outbox, is_delivered=False)
    await rig.clock.advance(MIN_AWAY_S - 1)
    rig.registry.leave(young, young_outbox, is_delivered=False)
    with pytest.raises(RefusalError):
        rig.open()
    await rig.clock.advance(1)
    new, _ = rig.open()
    assert rig.worker.commands == [Request.DROP]
    assert viewer.is_ending
    assert set(rig.registry._by_name) == {young.name, new.name}
    old.take_report(DONE)
    assert set(rig.registry._by_name) == {young.name, new.name}


async def test_a_resume_must_fit_its_stream() -> None:
    rig = Rig()
    stream, _ = rig.open()
    token = await token_of(stream, rig)
    with pytest.raises(MessageError) as caught:
        rig.registry.resume(Start("alaw", 8_000), Resume(token, 0), rig.outbox())
    assert caught.value.code == "resume_mismatch"
    with pytest.raises(MessageError) as caught:
        rig.registry.resume(START, Resume(token, 1), rig.outbox())
    assert caught.value.code == "bad_resume"


async def test_viewers_are_counted_and_limited() -> None:
    rig = Rig(max_viewers=1)
    stream, _ = rig.open()
    viewer = rig.outbox()
    assert rig.registry.watch(stream.name, viewer) is stream
    assert rig.counts() == (1, 1, 1)
    with pytest.raises(RefusalError) as caught:
        rig.registry.watch(stream.name, rig.outbox())
    assert (caught.value.code, caught.value.close_code) == ("too_many_viewers", 1013)
    with pytest.raises(RefusalError) as caught:
        rig.registry.watch("s-unknown", rig.outbox())
    assert (caught.value.code, caught.value.close_code) == ("unknown_stream", 4400)
    ready = await greeting(viewer)
    assert ready.resume_token is None


async def test_closing_drops_everything() -> None:
    rig = Rig()
    stream, outbox = rig.open()
    away, away_outbox = rig.open()
    rig.registry.leave(away, away_outbox, is_delivered=False)
    rig.registry.close()
    rig.registry.leave(stream, outbox, is_delivered=False)
    assert rig.counts() == (0, 0, 0)
    assert rig.worker.commands == [Request.DROP, Request.DROP]
    assert rig.clock.n_waiting == 0


async def test_no_error_is_logged_with_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    rig = Rig()
    start = Start("pcm_s16le", 16_000, prompt="secret words")
    stream = rig.registry.open(start, rig.outbox())
    stream.take_report(DONE)
    assert stream.name in caplog.text
    assert "secret" not in caplog.text


async def test_a_stream_whose_source_was_refused_gives_way_at_once() -> None:
    rig = Rig()
    (faulty, faulty_outbox), _ = rig.open(), rig.open()
    rig.registry.leave(faulty, faulty_outbox, is_delivered=False, is_at_fault=True)
    assert rig.registry.n_streams == 2  # it may be resumed while nobody needs its place
    rig.open()
    assert faulty.name not in rig.registry._by_name
    with pytest.raises(RefusalError):
        rig.open()


async def test_a_source_that_came_back_and_vanishes_has_its_full_time() -> None:
    rig = Rig()
    (stream, outbox), _ = rig.open(), rig.open()
    token = await token_of(stream, rig)
    rig.registry.leave(stream, outbox, is_delivered=False, is_at_fault=True)
    again = rig.outbox()
    rig.registry.resume(START, Resume(token, 0), again)
    rig.registry.leave(stream, again, is_delivered=False)
    with pytest.raises(RefusalError):
        rig.open()


@pytest.mark.parametrize(("channels", "labels"), [(2, ("a",)), (1, ("a", "b"))])
def test_labels_must_fit_the_channels(channels: int, labels: tuple[str, ...]) -> None:
    rig = Rig()
    with pytest.raises(MessageError, match=f"{len(labels)} channel_labels came for {channels}"):
        rig.registry.open(
            Start("pcm_s16le", 16_000, channels=channels, channel_labels=labels), rig.outbox()
        )
    assert rig.counts() == (0, 0, 0)
