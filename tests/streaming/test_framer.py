from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import AudioFormatError
from audiokv.streaming.framer import Framer
from audiokv.streaming.g711 import encode_alaw, encode_mulaw


def frames_of(fmt: AudioFormat, audio: bytes, cuts: list[int] | None = None) -> np.ndarray:
    framer = Framer(fmt)
    edges = [0, *sorted(min(cut, len(audio)) for cut in cuts or []), len(audio)]
    parts = [framer.push(audio[begin:end]) for begin, end in pairwise(edges)]
    assert all(len(part) % 160 == 0 for part in parts)
    return np.concatenate([*parts, framer.flush()])


def int16_of(seconds: float, rate_hz: int = 16_000) -> np.ndarray:
    phase = 2 * np.pi * 300 * np.arange(int(seconds * rate_hz)) / rate_hz
    return (np.sin(phase) * 12_000).astype(np.int16)


formats = st.builds(
    AudioFormat,
    encoding=st.sampled_from([Encoding.PCM_S16LE, Encoding.MULAW, Encoding.ALAW]),
    sample_rate_hz=st.sampled_from([8_000, 16_000, 44_100, 48_000]),
    channels=st.integers(1, 2),
)


@settings(max_examples=80, deadline=None)
@given(
    fmt=formats,
    audio=st.binary(max_size=3_000),
    cuts=st.lists(st.integers(0, 3_000), max_size=30),
)
def test_any_byte_split_gives_the_same_frames(
    fmt: AudioFormat, audio: bytes, cuts: list[int]
) -> None:
    np.testing.assert_array_equal(frames_of(fmt, audio, cuts), frames_of(fmt, audio))


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.floats(-8, 8, width=32), max_size=600),
    cuts=st.lists(st.integers(0, 2_400), max_size=30),
)
def test_any_byte_split_of_floats_gives_the_same_frames(
    values: list[float], cuts: list[int]
) -> None:
    fmt = AudioFormat(Encoding.PCM_F32LE)
    audio = np.array(values, "<f4").tobytes()
    frames = frames_of(fmt, audio, cuts)
    np.testing.assert_array_equal(frames, frames_of(fmt, audio))
    np.testing.assert_array_equal(
        frames[: len(values)], np.clip(np.array(values, np.float32), -1, 1)
    )


def test_the_first_frame_comes_with_its_last_byte() -> None:
    framer = Framer(AudioFormat())
    audio = int16_of(0.01).tobytes()
    assert len(framer.push(audio[:-1])) == 0
    np.testing.assert_array_equal(
        framer.push(audio[-1:]), int16_of(0.01).astype(np.float32) / 32_768
    )


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        (Encoding.PCM_S16LE, lambda samples: samples.astype("<i2").tobytes()),
        (Encoding.PCM_F32LE, lambda samples: (samples / 32_768).astype("<f4").tobytes()),
        (Encoding.MULAW, encode_mulaw),
        (Encoding.ALAW, encode_alaw),
    ],
)
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100])
def test_every_encoding_carries_the_same_sound(
    encoding: Encoding, encode: object, rate_hz: int
) -> None:
    assert callable(encode)
    audio = encode(int16_of(0.5, rate_hz))
    frames = frames_of(AudioFormat(encoding, rate_hz), audio)
    expected = int16_of(0.5).astype(np.float32) / 32_768
    assert len(frames) == 8_000
    assert np.abs(frames - expected)[100:-100].max() < 0.02


def test_two_channels_are_averaged() -> None:
    left_right = np.array([[8_192, 0], [-16_384, 16_384]] * 80, "<i2")
    frames = frames_of(AudioFormat(channels=2), left_right.tobytes())
    assert frames.tolist() == [0.125, 0.0] * 80


def test_the_last_frame_is_filled_with_zeros() -> None:
    framer = Framer(AudioFormat())
    framer.push(np.full(200, 16_384, "<i2").tobytes())
    assert framer.flush().tolist() == [0.5] * 40 + [0.0] * 120
    assert len(framer.flush()) == 0


def test_an_empty_stream_has_no_frames() -> None:
    framer = Framer(AudioFormat(Encoding.MULAW, 8_000))
    assert len(framer.push(b"")) == 0
    assert len(framer.flush()) == 0
    assert (framer.received_samples, framer.received_ms, framer.dropped_bytes) == (0, 0, 0)


def test_received_counts_whole_samples_at_the_source_rate() -> None:
    framer = Framer(AudioFormat(Encoding.PCM_S16LE, 44_100, 2))
    framer.push(bytes(4 * 4_410 + 3))
    assert framer.received_samples == 4_410
    assert framer.received_ms == 100
    framer.push(b"\0")
    assert framer.received_samples == 4_411


def test_a_half_sent_sample_is_dropped_and_counted() -> None:
    framer = Framer(AudioFormat(channels=2))
    framer.push(bytes(7))
    assert framer.dropped_bytes == 0
    assert len(framer.flush()) == 160
    assert framer.dropped_bytes == 3
    assert framer.received_samples == 1


def test_nothing_is_taken_after_the_end() -> None:
    framer = Framer(AudioFormat())
    framer.flush()
    with pytest.raises(ValueError, match="flushed"):
        framer.push(bytes(320))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_floats_that_are_not_finite_are_refused(bad: float) -> None:
    framer = Framer(AudioFormat(Encoding.PCM_F32LE))
    with pytest.raises(AudioFormatError, match="NaN or infinite") as caught:
        framer.push(np.array([0.1, bad], "<f4").tobytes())
    assert caught.value.code == "bad_samples"
    assert "pcm_f32le" in caught.value.remedy


def test_integers_sent_as_floats_are_refused_with_the_likely_cause() -> None:
    framer = Framer(AudioFormat(Encoding.PCM_F32LE))
    with pytest.raises(AudioFormatError, match="1200") as caught:
        framer.push(np.array([0.5, -1_200.0], "<f4").tobytes())
    assert caught.value.code == "bad_samples"
    assert "pcm_s16le" in caught.value.remedy


def test_loud_floats_are_clipped() -> None:
    frames = frames_of(AudioFormat(Encoding.PCM_F32LE), np.full(160, -7.5, "<f4").tobytes())
    assert frames.tolist() == [-1.0] * 160
