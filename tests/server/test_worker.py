from __future__ import annotations

import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from audiokv.models.base import Hypothesis, StreamOptions
from audiokv.server.sessions import session_opener
from audiokv.server.worker import Job, Report, Request, Worker
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.recognition_counts import RecognitionCounts
from audiokv.streaming.session_options import SessionOptions
from tests.server.doubles import (
    LoudnessDetector,
    ScriptedRecognizer,
    ScriptedStream,
    captions_in,
    silence,
    speech,
    undisturbed,
)
from tests.server.worker_rig import PATIENCE_S, Stream, open_rigs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from audiokv.models.base import RecognizerStream
    from tests.server.worker_rig import Rig


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    with open_rigs() as make:
        yield make


def test_a_stream_says_what_its_session_says(make_rig: Callable[..., Rig]) -> None:
    audio = speech(1, seconds=5)
    stream = Stream(make_rig())
    for start in range(0, len(audio), 320):
        stream.submit(audio[start : start + 320])
    stream.submit(Request.STOP)
    assert stream.wait().failure is None
    assert stream.events == undisturbed(audio)
    assert stream.reports[-1].processed_ms == 5_000


def test_silence_is_reported_now_and_then(make_rig: Callable[..., Rig]) -> None:
    stream = Stream(make_rig())
    stream.submit(silence(seconds=1))
    assert stream.next().processed_ms == 1_000
    for _ in range(20):
        stream.submit(silence(seconds=0.01))
    while stream.next().processed_ms < 1_200:
        pass
    assert len(stream.reports) <= 3
    stream.submit(Request.STOP)
    assert stream.wait().is_done


def test_an_empty_stream_is_done_at_once(make_rig: Callable[..., Rig]) -> None:
    stream = Stream(make_rig())
    stream.submit(Request.STOP)
    assert stream.wait() == Report((), 0, is_done=True)


def test_options_and_finalize_reach_the_session(make_rig: Callable[..., Rig]) -> None:
    audio = speech(2, seconds=1)
    stream = Stream(make_rig())
    stream.submit(StreamOptions(language="de", prompt="x"), audio, Request.FINALIZE, Request.STOP)
    stream.wait()
    assert stream.events == undisturbed(audio, StreamOptions(language="de", prompt="x"))


def test_steps_are_taken_in_batches_and_in_turn(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(max_batch=3)
    rig.recognizer.gate.clear()
    audios = [speech(seed, seconds=3) for seed in range(4)]
    streams = [Stream(rig) for _ in audios]
    for stream, audio in zip(streams, audios, strict=True):
        stream.submit(audio, Request.STOP)
    rig.recognizer.gate.set()
    for stream, audio in zip(streams, audios, strict=True):
        stream.wait()
        assert stream.events == undisturbed(audio)
    assert max(rig.recognizer.batches) == 3
    n_steps = sum(rig.recognizer.batches)
    assert len(rig.recognizer.batches) < n_steps / 2


def test_a_recogniser_that_gains_from_batches_is_given_them(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = replace(ScriptedRecognizer.info, batch_streams=3)
    monkeypatch.setattr(ScriptedRecognizer, "info", info)
    rig = make_rig(max_batch=2)
    rig.recognizer.gate.clear()
    streams = [Stream(rig) for _ in range(4)]
    for stream in streams:
        stream.submit(speech(1, seconds=1), Request.STOP)
    rig.recognizer.gate.set()
    for stream in streams:
        stream.wait()
    assert max(rig.recognizer.batches) == 3


def test_a_sender_far_ahead_does_not_keep_others_waiting(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    hasty, live = Stream(rig), Stream(rig)
    rig.recognizer.gate.clear()
    hasty.submit(speech(1, seconds=60), Request.STOP)
    live.submit(speech(2, seconds=1), Request.STOP)
    rig.recognizer.gate.set()
    live.wait()
    n_live_steps = 5
    assert live.n_batches < 4 * n_live_steps
    hasty.submit(Request.DROP)


@pytest.mark.parametrize("max_batch", [1, 4])
def test_a_failure_ends_one_stream_only(
    make_rig: Callable[..., Rig], max_batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig(max_batch=max_batch)
    rig.recognizer.gate.clear()
    audio = speech(3, seconds=2)
    broken = Stream(rig, StreamOptions(prompt="break"))
    unopened = Stream(rig, StreamOptions(prompt="refuse to open"))
    whole = Stream(rig)
    for stream in (whole, unopened, broken):
        stream.submit(audio)
    rig.recognizer.gate.set()
    for stream in (broken, unopened):
        failure = stream.wait().failure
        assert failure is not None
        assert (failure.code, failure.close_code) == ("internal", 1011)
        stream.submit(audio, Request.STOP)  # comes too late, and changes nothing
    whole.submit(Request.STOP)
    assert whole.wait().failure is None
    assert whole.events == undisturbed(audio)
    assert caplog.text.count("stream s-test failed: RuntimeError at doubles.py:") == 2
    assert "secret" not in caplog.text


def test_broken_samples_are_the_senders_fault(make_rig: Callable[..., Rig]) -> None:
    stream = Stream(make_rig(), fmt=AudioFormat(Encoding.PCM_F32LE))
    stream.submit(b"\x00\x00\xc0\x7f" * 160)
    failure = stream.wait().failure
    assert failure is not None
    assert failure.close_code == 1003
    assert failure.remedy


def test_a_dropped_stream_says_nothing_more(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    dropped, other = Stream(rig), Stream(rig)
    dropped.submit(silence(seconds=1), Request.DROP, silence(seconds=1), Request.STOP)
    dropped.submit(Request.STOP)
    other.submit(Request.STOP)
    other.wait()
    with pytest.raises(queue.Empty):
        dropped._reports.get_nowait()
    assert dropped.job.session is None


def test_a_stream_dropped_while_it_waits_is_not_recognised(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.recognizer.gate.clear()
    first, second = Stream(rig), Stream(rig)
    first.submit(speech(1, seconds=1))
    second.submit(speech(2, seconds=1))
    second.submit(Request.DROP)
    first.submit(Request.STOP)
    rig.recognizer.gate.set()
    first.wait()
    assert first.events == undisturbed(speech(1, seconds=1))


def test_many_commands_are_reported_even_without_audio(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.recognizer.gate.clear()
    blocking, stream = Stream(rig), Stream(rig)
    blocking.submit(speech(1, seconds=1))
    stream.submit(*[StreamOptions()] * 2_000)
    rig.recognizer.gate.set()
    stream.next()
    assert stream.job.n_pending < 1_000


def test_stopping_does_not_wait_for_a_step_that_hangs(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.recognizer.gate.clear()
    Stream(rig).submit(speech(1, seconds=1))
    assert rig.recognizer.is_asked.wait(PATIENCE_S)
    assert not rig.worker.stop(0.01)
    assert rig.worker.is_alive
    rig.recognizer.gate.set()
    assert rig.worker.stop(PATIENCE_S)


def test_reports_after_the_loop_has_closed_are_dropped() -> None:
    is_called = threading.Event()

    def call_soon(_deliver: Callable[[Report], None], _report: Report) -> None:
        is_called.set()
        raise RuntimeError("Event loop is closed")

    worker = Worker(ScriptedRecognizer(), call_soon=call_soon)
    open_session = session_opener(ScriptedRecognizer(), LoudnessDetector, SessionOptions())
    job = Job(
        "s-1", lambda: open_session(AudioFormat(), StreamOptions(), ()), lambda _: None, lambda: 0
    )
    worker.start()
    worker.submit(job, Request.STOP)
    assert is_called.wait(PATIENCE_S)
    assert worker.is_alive
    assert worker.stop(PATIENCE_S)


def test_of_many_wishes_at_one_place_only_the_last_is_carried_out(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    rig.recognizer.gate.clear()
    audio = speech(4, seconds=1)
    blocking, stream = Stream(rig), Stream(rig)
    blocking.submit(speech(1, seconds=1))
    assert rig.recognizer.is_asked.wait(PATIENCE_S)
    wishes = [StreamOptions(prompt=f"p{i}") for i in range(500)]
    stream.submit(*wishes, audio, StreamOptions(prompt="last"), Request.STOP)
    taken: list[StreamOptions] = []
    update = ScriptedStream.update

    def counting(self: ScriptedStream, options: StreamOptions) -> None:
        taken.append(options)
        update(self, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedStream, "update", counting)
        rig.recognizer.gate.set()
        stream.wait()
    assert taken == [StreamOptions(prompt="p499"), StreamOptions(prompt="last")]
    first, *_, last = captions_in(stream.events)
    assert first.text.startswith("p499")
    assert last.text.startswith("p499")  # what was committed before the last wish stays


class Fatal(BaseException):
    """What no boundary of a session takes."""


def test_the_death_of_the_thread_shows_and_its_words_stay_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Deadly(ScriptedRecognizer):
        def decode(self, _streams: object) -> list[Hypothesis]:
            raise Fatal("secret words")

    recognizer = Deadly()
    open_session = session_opener(recognizer, LoudnessDetector, SessionOptions())
    worker = Worker(recognizer, call_soon=lambda deliver, report: deliver(report))
    job = Job(
        "s-1", lambda: open_session(AudioFormat(), StreamOptions(), ()), lambda _: None, lambda: 0
    )
    worker.start()
    worker.submit(job, speech(1, seconds=1))
    worker._thread.join(PATIENCE_S)
    assert not worker.is_alive
    assert "the worker failed: Fatal at test_worker.py" in caplog.text
    assert "secret" not in caplog.text


def test_a_stream_tells_what_went_wrong_with_its_recognition(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    decode = rig.recognizer.decode

    def doubting(streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        return [replace(h, is_decoded_again=True, is_dropped=True) for h in decode(streams)]

    monkeypatch.setattr(rig.recognizer, "decode", doubting)
    stream = Stream(rig)
    stream.submit(speech(4, seconds=2), Request.STOP)
    stream.wait()
    counts = stream.reports[-1].recognition
    n_steps = len(rig.recognizer.batches)
    assert counts == RecognitionCounts(0, n_steps, n_steps)
    assert n_steps > 1


def test_a_stream_rests_after_each_step_and_tells_of_its_cache(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    bounded, unbounded = Stream(rig, StreamOptions(prompt="count")), Stream(rig)
    for stream in (bounded, unbounded):
        stream.submit(speech(4, seconds=2), Request.STOP)
        stream.wait()
    n_steps = len(rig.recognizer.batches) // 2
    last = bounded.reports[-1].cache
    assert last is not None
    assert 1 < last.seen_slots + 1 == n_steps  # the last rest comes after the last report
    assert all(report.cache is None for report in unbounded.reports)
