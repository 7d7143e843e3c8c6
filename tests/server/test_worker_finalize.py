from __future__ import annotations

import pytest

from audiokv.server.worker import Request
from audiokv.streaming.audio_format import AudioFormat
from tests.server.doubles import captions_in, silence, speech
from tests.server.worker_rig import Stream, open_rigs

STEREO = AudioFormat(channels=2)


def interleaved(left: bytes, right: bytes) -> bytes:
    return b"".join(left[i : i + 2] + right[i : i + 2] for i in range(0, len(left), 2))


def test_a_request_counts_once_all_before_it_was_said() -> None:
    with open_rigs() as make_rig:
        stream = Stream(make_rig())
        stream.submit(speech(1, seconds=1), Request.FINALIZE)
        while not stream.next().n_finalized:
            assert not any(c.is_final for c in captions_in(stream.events))
        assert [c.is_final for c in captions_in(stream.events)][-1]


@pytest.mark.parametrize("audio", [b"", silence(seconds=0.03)])
def test_where_nothing_is_open_it_counts_at_once_without_more_audio(audio: bytes) -> None:
    with open_rigs() as make_rig:
        stream = Stream(make_rig())
        stream.submit(audio, Request.FINALIZE)
        assert stream.next().n_finalized == 1
        stream.submit(Request.FINALIZE)
        assert stream.next().n_finalized == 2


def test_several_at_one_place_all_count() -> None:
    with open_rigs() as make_rig:
        stream = Stream(make_rig())
        stream.submit(speech(1, seconds=1), *[Request.FINALIZE] * 3, speech(2, seconds=1))
        while stream.next().n_finalized < 3:
            pass
        assert stream.reports[-1].n_finalized == 3
        finals = [c for c in captions_in(stream.events) if c.is_final]
        assert len(finals) == 1
        assert finals[0].end_ms <= 1_000


def test_it_counts_once_every_channel_has_said_all() -> None:
    with open_rigs() as make_rig:
        stream = Stream(make_rig(), fmt=STEREO, labels=("a", "b"))
        audio = interleaved(speech(1, seconds=1), speech(2, seconds=1))
        stream.submit(audio, Request.FINALIZE)
        while not stream.next().n_finalized:
            pass
        finals = [c for c in captions_in(stream.events) if c.is_final]
        assert sorted(str(c.speaker) for c in finals) == ["a", "b"]
