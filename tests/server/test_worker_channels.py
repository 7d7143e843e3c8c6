from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.models.base import StreamOptions
from audiokv.server.worker import Request
from audiokv.streaming.audio_format import AudioFormat, Encoding
from tests.server.doubles import captions_in, silence, speech, undisturbed
from tests.server.worker_rig import Stream, open_rigs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.worker_rig import Rig


@pytest.fixture
def make_rig() -> Iterator[Callable[..., Rig]]:
    with open_rigs() as make:
        yield make


def stereo(left: bytes, right: bytes) -> bytes:
    columns = [np.frombuffer(side, "<i2") for side in (left, right)]
    return np.stack(columns, axis=1).tobytes()


STEREO = AudioFormat(Encoding.PCM_S16LE, 16_000, 2)


def test_the_channels_of_a_call_are_recognised_together_and_labelled(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig()
    rig.recognizer.gate.clear()
    sides = [speech(seed, seconds=3) for seed in (1, 2)]
    call = Stream(rig, fmt=STEREO, labels=("agent", "caller"))
    call.submit(stereo(*sides), Request.STOP)
    rig.recognizer.gate.set()
    assert call.wait().failure is None
    said = captions_in(call.events)
    for label, side in zip(("agent", "caller"), sides, strict=True):
        alone = [caption.text for caption in captions_in(undisturbed(side))]
        assert [caption.text for caption in said if caption.speaker == label] == alone
    assert [caption.seq for caption in said] == list(range(1, len(said) + 1))
    assert set(rig.recognizer.batches) == {2}  # both speak in step, from the first sample on
    assert call.reports[-1].processed_ms == 3_000


def test_wishes_wait_for_the_audio_before_them(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.recognizer.gate.clear()
    audio = speech(5, seconds=1.25) + silence(seconds=1)
    stream = Stream(rig, StreamOptions(prompt="a"))
    for wish in ("b", "c"):
        stream.submit(audio, StreamOptions(prompt=wish))
    stream.submit(audio, Request.STOP)
    rig.recognizer.gate.set()
    stream.wait()
    finals = [caption.text for caption in captions_in(stream.events) if caption.is_final]
    assert [{word[0] for word in text.split()} for text in finals] == [{"a"}, {"b"}, {"c"}]


def test_a_recogniser_that_answers_too_little_ends_the_stream(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    monkeypatch.setattr(rig.recognizer, "decode", lambda _streams: [])
    stream = Stream(rig)
    stream.submit(speech(1, seconds=1))
    failure = stream.wait().failure
    assert failure is not None
    assert failure.code == "internal"
