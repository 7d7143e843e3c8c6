from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from audiokv.streaming.audio_format import (
    FRAME_MS,
    FRAME_SAMPLES,
    SAMPLE_BYTES,
    SAMPLE_RATE_HZ,
    AudioFormat,
    Encoding,
)
from audiokv.streaming.errors import AudioFormatError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_inside_everything_is_10_ms_of_16_khz() -> None:
    assert (FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ) == (10, 160, 16_000)
    assert AudioFormat() == AudioFormat(Encoding.PCM_S16LE, 16_000, 1)


@pytest.mark.parametrize(
    ("encoding", "n_bytes"), [("pcm_s16le", 2), ("pcm_f32le", 4), ("mulaw", 1), ("alaw", 1)]
)
@pytest.mark.parametrize("channels", [1, 2])
def test_sizes_follow_encoding_channels_and_rate(
    encoding: str, n_bytes: int, channels: int
) -> None:
    fmt = AudioFormat(Encoding(encoding), 8_000, channels)
    assert fmt.frame_bytes == n_bytes * channels
    assert fmt.bytes_per_second == n_bytes * channels * 8_000


def test_every_encoding_has_a_size() -> None:
    assert set(SAMPLE_BYTES) == set(Encoding)


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 44_100, 48_000])
def test_rates_in_range_are_taken(rate_hz: int) -> None:
    assert AudioFormat(sample_rate_hz=rate_hz).sample_rate_hz == rate_hz


@pytest.mark.parametrize(
    ("declare", "code", "named"),
    [
        (lambda: AudioFormat(encoding="mp3"), "unknown_encoding", "mp3"),  # type: ignore[arg-type]
        (lambda: AudioFormat(sample_rate_hz=7_999), "bad_sample_rate", "7999"),
        (lambda: AudioFormat(sample_rate_hz=48_001), "bad_sample_rate", "48001"),
        (lambda: AudioFormat(sample_rate_hz=0), "bad_sample_rate", "0"),
        (lambda: AudioFormat(sample_rate_hz=-16_000), "bad_sample_rate", "-16000"),
        (lambda: AudioFormat(channels=0), "bad_channels", "0"),
        (lambda: AudioFormat(channels=3), "bad_channels", "3"),
    ],
)
def test_what_cannot_be_decoded_is_refused(
    declare: Callable[[], AudioFormat], code: str, named: str
) -> None:
    with pytest.raises(AudioFormatError) as caught:
        declare()
    assert caught.value.code == code
    assert named in caught.value.message
    assert caught.value.remedy


def test_the_remedy_names_what_is_known() -> None:
    with pytest.raises(AudioFormatError) as caught:
        AudioFormat(encoding="opus")  # type: ignore[arg-type]
    assert all(encoding in caught.value.remedy for encoding in Encoding)
