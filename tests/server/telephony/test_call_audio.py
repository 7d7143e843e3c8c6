from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.call_audio import CallAudio, encoding_named
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("audio/x-mulaw", Encoding.MULAW),
        ("PCMU", Encoding.MULAW),
        ("ulaw", Encoding.MULAW),
        ("PCMA", Encoding.ALAW),
        ("audio/x-alaw", Encoding.ALAW),
        ("audio/l16;rate=16000", Encoding.PCM_S16LE),
        ("audio/x-raw", Encoding.PCM_S16LE),
        ("LINEAR16", Encoding.PCM_S16LE),
        ("PCM", Encoding.PCM_S16LE),
    ],
)
def test_codecs_are_known_by_all_their_names(name: str, encoding: Encoding) -> None:
    assert encoding_named(name) is encoding


@pytest.mark.parametrize("name", ["", "G722", "OPUS", "audio/x-", "x" * 999])
def test_other_codecs_are_refused(name: str) -> None:
    with pytest.raises(MessageError) as caught:
        encoding_named(name)
    assert caught.value.code == "unsupported_codec"


def test_audio_that_the_stream_takes_is_left_alone() -> None:
    audio = CallAudio(Encoding.MULAW, 8_000, 2)
    assert audio.fmt == AudioFormat(Encoding.MULAW, 8_000, 2)
    assert audio.push(b"\x01\x02\x03") == b"\x01\x02\x03"


@pytest.mark.parametrize(
    ("encoding", "rate_hz", "channels"),
    [
        (Encoding.PCM_S16LE, 7_999, 1),
        (Encoding.PCM_S16LE, 192_001, 1),
        (Encoding.PCM_S16LE, 8_000, 0),
        (Encoding.PCM_S16LE, 8_000, 3),
        (Encoding.PCM_S16LE, 96_000, 2),
        (Encoding.MULAW, 96_000, 1),
    ],
)
def test_audio_that_cannot_be_taken_is_refused(
    encoding: Encoding, rate_hz: int, channels: int
) -> None:
    with pytest.raises(MessageError):
        CallAudio(encoding, rate_hz, channels)


@pytest.mark.parametrize("rate_hz", [96_000, 192_000])
def test_a_high_rate_is_brought_down_to_16_khz(rate_hz: int) -> None:
    times = np.arange(rate_hz) / rate_hz
    tone = (10_000 * np.sin(2 * np.pi * 440 * times)).astype("<i2").tobytes()
    audio = CallAudio(Encoding.PCM_S16LE, rate_hz)
    assert audio.fmt == AudioFormat()
    heard = np.frombuffer(audio.push(tone), "<i2").astype(float)
    expected = 10_000 * np.sin(2 * np.pi * 440 * np.arange(len(heard)) / 16_000)
    assert 15_900 < len(heard) <= 16_000
    assert np.abs(heard - expected)[200:-200].max() < 150


@given(st.lists(st.integers(1, 700), max_size=20))
def test_a_high_rate_does_not_depend_on_the_split(sizes: list[int]) -> None:
    audio = np.random.default_rng(3).integers(-32_768, 32_767, 4_000).astype("<i2").tobytes()
    whole = CallAudio(Encoding.PCM_S16LE, 96_000).push(audio)
    split = CallAudio(Encoding.PCM_S16LE, 96_000)
    parts, at = b"", 0
    for size in [*sizes, len(audio)]:
        parts += split.push(audio[at : at + size])
        at += size
    assert parts == whole
