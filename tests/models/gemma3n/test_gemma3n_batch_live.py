"""Live streams of spoken digits in one worker: together they say what each says alone."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import jiwer
import numpy as np
import pytest
import torch

from audiokv.models.base import StreamOptions
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.gemma3n_stream import WindowOptions
from audiokv.models.gemma3n.tower import StreamingTower
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.server.sessions import session_opener
from audiokv.server.worker import Job, Request, Worker
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.session_options import SessionOptions
from tests.models.gemma3n.test_gemma3n_digits_live import RATE_HZ, speak

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from audiokv.models.base import Hypothesis, Recognizer, RecognizerStream
    from audiokv.server.worker import Report
    from tests.models.gemma3n.test_gemma3n_digits_live import Spoken

PATIENCE_S = 120
PIECE_SAMPLES = 6400


class Gated:
    """A recogniser that waits until all streams are there, and counts its batches.

    Args:
        recognizer: Does the work.
        most_together: Streams that it says it is best given at once.
    """

    def __init__(self, recognizer: Recognizer, most_together: int) -> None:
        self._recognizer = recognizer
        self.info = replace(recognizer.info, batch_streams=most_together)
        self.gate = threading.Event()
        self.batches: list[int] = []

    def open_stream(self, options: StreamOptions) -> RecognizerStream:
        return self._recognizer.open_stream(options)

    def decode(self, streams: Sequence[RecognizerStream]) -> list[Hypothesis]:
        self.gate.wait(PATIENCE_S)
        self.batches.append(len(streams))
        return self._recognizer.decode(streams)


class Listener:
    """Takes the reports of one stream."""

    def __init__(self) -> None:
        self.said: list[Caption] = []
        self.is_over = threading.Event()
        self.failure: object = None

    def take(self, report: Report) -> None:
        self.said += [s.event for s in report.news if isinstance(s.event, Caption)]
        self.failure = self.failure or report.failure
        if report.is_done or report.failure:
            self.is_over.set()

    @property
    def text(self) -> str:
        return " ".join(caption.text for caption in self.said if caption.is_final)


def heard(
    recognizer: Recognizer, strings: Sequence[Spoken], most_together: int
) -> tuple[list[Listener], list[int]]:
    """What streams say that all come at once into one worker, and its batches."""
    gated = Gated(recognizer, most_together)
    worker = Worker(gated, call_soon=lambda deliver, report: deliver(report))
    worker.start()
    model = SileroModel.load()
    open_session = session_opener(gated, model.open, SessionOptions(max_lag_ms=600_000))
    fmt = AudioFormat(Encoding.PCM_S16LE, RATE_HZ)
    listeners = [Listener() for _ in strings]
    for number, (listener, string) in enumerate(zip(listeners, strings, strict=True)):
        job = Job(
            f"s-{number}",
            lambda: open_session(fmt, StreamOptions("en"), ()),
            listener.take,
            lambda: 0,
        )
        worker.submit(job, string.samples.tobytes())
        worker.submit(job, Request.STOP)
    gated.gate.set()
    for listener in listeners:
        assert listener.is_over.wait(PATIENCE_S)
        assert listener.failure is None
    assert worker.stop(PATIENCE_S)
    return listeners, gated.batches


@pytest.mark.weights
@pytest.mark.parametrize("cache", [CacheOptions(), CacheOptions(64, "audiokv")])
def test_streams_in_one_worker_say_together_what_each_says_alone(
    repository: Path, speech_folder: Path, cache: CacheOptions
) -> None:
    folder = str(repository / "tests" / "models" / "gemma3n-digits")
    recognizer = load_recognizer(folder, cache)
    assert recognizer.info.batch_streams > 1
    strings = [speak(speech_folder, n_digits, seed) for seed, n_digits in enumerate([3, 5, 2, 4])]
    alone, single = heard(recognizer, strings, 1)
    together, batches = heard(recognizer, strings, len(strings))
    assert set(single) == {1}
    assert max(batches) == len(strings)
    assert sum(batches) == len(single)  # the same steps
    assert len(batches) < 0.6 * len(single)
    for first, second in zip(alone, together, strict=True):
        assert [caption.text for caption in second.said] == [caption.text for caption in first.said]
    references = [" ".join(string.words) for string in strings]
    assert jiwer.wer(references, [listener.text or "-" for listener in together]) <= 0.2


def out_of_memory(*_: object) -> None:
    raise MemoryError


def at_16_khz(string: Spoken) -> NDArray[np.float32]:
    times = np.arange(2 * len(string.samples)) / 2
    samples = np.interp(times, np.arange(len(string.samples)), string.samples)
    return (samples / 32_768).astype(np.float32)


class Passes:
    """Two streams that are stepped together, and what is known of them.

    Args:
        recognizer: Of both.
        sounds: What each hears.
    """

    def __init__(
        self, recognizer: Gemma3nRecognizer, sounds: Sequence[NDArray[np.float32]]
    ) -> None:
        self._recognizer = recognizer
        self._sounds = sounds
        self.streams = [recognizer.open_stream(StreamOptions("en")) for _ in sounds]
        for stream in self.streams:
            stream.open(0)
            stream.begin_segment(0)

    def run(self, disturb: Callable[[int], None]) -> tuple[list[list[str]], list[int]]:
        """Return the last texts, and the slots in each prefix."""
        hypotheses: list[Hypothesis] = []
        for number, start in enumerate(range(0, max(map(len, self._sounds)), PIECE_SAMPLES)):
            for stream, sound in zip(self.streams, self._sounds, strict=True):
                stream.append(sound[start : start + PIECE_SAMPLES])
            disturb(number)
            hypotheses = self._recognizer.decode(self.streams)
        texts = [[word.text for word in one.words] for one in hypotheses]
        return texts, [len(stream._prefix.audio_rows(0)) for stream in self.streams]

    @property
    def slots(self) -> list[torch.Tensor]:
        """Embeddings of each stream's slots."""
        return [torch.cat([one.embeds for one, _ in stream._slots], 1) for stream in self.streams]


@pytest.mark.weights
@pytest.mark.parametrize("budget_slots", [None, 64])
@pytest.mark.parametrize("broken", ["encoder", "text model"])
def test_a_shared_pass_that_fails_costs_no_stream_its_audio(
    repository: Path,
    speech_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    budget_slots: int | None,
) -> None:
    folder = repository / "tests" / "models" / "gemma3n-digits"
    window = WindowOptions(cache=CacheOptions(budget_slots))
    recognizer = Gemma3nRecognizer(folder, "digits", window)
    sounds = [at_16_khz(speak(speech_folder, 5, seed)) for seed in (0, 2)]
    undisturbed = Passes(recognizer, sounds)
    expected = undisturbed.run(lambda _: None)
    assert [len(words) for words in expected[0]] == [5, 5]
    disturbed = Passes(recognizer, sounds)

    def fail(number: int) -> None:
        if number not in (2, 5):
            return
        with monkeypatch.context() as patched:
            if broken == "encoder":
                patched.setattr(StreamingTower, "advance_each", out_of_memory)
            else:
                patched.setattr(recognizer._batch, "_forward", out_of_memory)
            with pytest.raises(MemoryError):
                recognizer.decode(disturbed.streams)

    assert disturbed.run(fail) == expected
    torch.testing.assert_close(disturbed.slots, undisturbed.slots, atol=1e-5, rtol=1e-4)
