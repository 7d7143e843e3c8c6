from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.client.file import AudioFile, send_fast, send_in_real_time
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import AudioFormatError

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.client.link import ReconnectingLink


def tone(seconds: float, rate_hz: int, channels: int = 1) -> np.ndarray:
    times = np.arange(round(seconds * rate_hz)) / rate_hz
    one = 0.5 * np.sin(2 * np.pi * 440 * times)
    return np.stack([one * (1 - 0.3 * i) for i in range(channels)], axis=1)


def samples_of(file: AudioFile, block_ms: int = 10) -> np.ndarray:
    audio = b"".join(file.blocks(block_ms))
    return np.frombuffer(audio, "<i2").reshape(-1, file.audio_format.channels)


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3", "aiff"])
def test_the_usual_formats_are_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"tone.{ending}"
    soundfile.write(path, tone(1.0, 16_000), 16_000)
    with AudioFile(path) as file:
        assert file.audio_format == AudioFormat(sample_rate_hz=16_000)
        heard = samples_of(file)[:16_000, 0] / 32768
    expected = tone(1.0, 16_000)[: len(heard), 0]
    assert np.corrcoef(heard, expected)[0, 1] > 0.99
    assert len(heard) == 16_000


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=500), st.integers(1, 40))
def test_sixteen_bit_audio_comes_out_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], block_ms: int
) -> None:
    path = tmp_path_factory.mktemp("exact") / "exact.wav"
    soundfile.write(path, np.array(values, dtype=np.int16), 8_000)
    with AudioFile(path) as file:
        assert samples_of(file, block_ms)[:, 0].tolist() == values


def test_stereo_stays_stereo_and_more_channels_become_one(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "2.wav", tone(0.1, 44_100, 2), 44_100)
    soundfile.write(tmp_path / "3.wav", tone(0.1, 44_100, 3), 44_100)
    with AudioFile(tmp_path / "2.wav") as file:
        assert file.audio_format == AudioFormat(sample_rate_hz=44_100, channels=2)
        left, right = samples_of(file).T
        assert np.abs(right).max() == pytest.approx(0.7 * np.abs(left).max(), rel=0.01)
    with AudioFile(tmp_path / "3.wav") as file:
        assert file.audio_format == AudioFormat(sample_rate_hz=44_100, channels=1)
        assert np.abs(samples_of(file)).max() == pytest.approx(0.7 * 16_384, rel=0.01)


@pytest.mark.parametrize("rate_hz", [6_000, 96_000])
def test_rates_the_protocol_does_not_take_are_resampled(tmp_path: Path, rate_hz: int) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(0.5, rate_hz, 2), rate_hz)
    with AudioFile(path) as file:
        assert file.audio_format == AudioFormat(sample_rate_hz=16_000, channels=2)
        assert file.duration_ms == 500
        heard = samples_of(file)
    assert len(heard) == 8_000
    assert np.corrcoef(heard[:, 0], tone(0.5, 16_000)[:, 0])[0, 1] > 0.999


def test_what_no_speaker_can_play_becomes_silence_or_full_scale(tmp_path: Path) -> None:
    path = tmp_path / "odd.wav"
    odd = np.array([np.nan, np.inf, -np.inf, 2.0, -2.0, 0.5], dtype=np.float32)
    soundfile.write(path, odd, 8_000, subtype="FLOAT")
    with AudioFile(path) as file:
        assert samples_of(file)[:, 0].tolist() == [0, 32767, -32768, 32767, -32768, 16384]


def test_a_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "long.flac"
    soundfile.write(path, np.zeros(16_000 * 20, dtype=np.int16), 16_000)
    with AudioFile(path) as file:
        sizes = [len(block) for block in file.blocks(100)]
    assert max(sizes) == 3_200
    assert sum(sizes) == 16_000 * 20 * 2


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("missing.wav", None, "no_file"),
        ("empty.wav", b"", "empty_audio"),
        ("text.wav", b"This is not audio at all, it is text.", "not_audio"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "not_audio"),
        ("unknown.raw", bytes(1000), "not_audio"),
        (".", None, "not_a_file"),
    ],
)
def test_what_is_not_audio_is_named(
    tmp_path: Path, name: str, content: bytes | None, code: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AudioFormatError) as failure:
        AudioFile(path)
    assert failure.value.code == code
    assert str(path) in failure.value.message
    assert failure.value.remedy


def test_a_header_without_audio_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "header.wav"
    soundfile.write(path, np.zeros(0, dtype=np.int16), 8_000)
    with pytest.raises(AudioFormatError, match="holds no audio"):
        AudioFile(path)


def test_damage_amid_a_file_is_reported_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "damaged.flac"
    noise = np.random.default_rng(1).integers(-9999, 9999, 160_000).astype(np.int16)
    soundfile.write(path, noise, 16_000)
    broken = bytearray(path.read_bytes())
    broken[len(broken) // 2 : len(broken) // 2 + 20_000] = bytes(20_000)
    path.write_bytes(broken)
    with AudioFile(path) as file, pytest.raises(AudioFormatError, match=r"damaged at about \d"):
        samples_of(file)


class Recorder:
    """Stands in for a link: keeps what is sent and when."""

    def __init__(self, clock: SteadyClock) -> None:
        self.clock = clock
        self.sent: list[tuple[float, int]] = []
        self.delay_s = 0.0

    async def send(self, audio: bytes) -> None:
        self.sent.append((self.clock.time_s, len(audio)))
        self.clock.time_s += self.delay_s


class SteadyClock:
    """A clock that only goes on while someone sleeps."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s

    async def sleep(self, delay_s: float) -> None:
        self.time_s += delay_s


@pytest.fixture
def second(tmp_path: Path) -> Path:
    path = tmp_path / "second.wav"
    soundfile.write(path, np.zeros(8_000, dtype=np.int16), 8_000)
    return path


async def test_real_time_is_ten_milliseconds_every_ten_milliseconds(second: Path) -> None:
    clock = SteadyClock()
    recorder = Recorder(clock)
    with AudioFile(second) as file:
        await send_in_real_time(cast("ReconnectingLink", recorder), file, clock)
    frames = [entry for entry in recorder.sent if entry[1]]
    assert [size for _, size in frames] == [160] * 100
    assert [round((at_s - 100.0) * 1000) for at_s, _ in frames] == list(range(10, 1010, 10))


async def test_after_a_delay_it_catches_up(second: Path) -> None:
    clock = SteadyClock()
    recorder = Recorder(clock)
    with AudioFile(second) as file:
        recorder.delay_s = 0.004
        await send_in_real_time(cast("ReconnectingLink", recorder), file, clock)
    assert clock.time_s == pytest.approx(101.0, abs=0.02)


async def test_fast_means_without_waiting(second: Path) -> None:
    clock = SteadyClock()
    recorder = Recorder(clock)
    with AudioFile(second) as file:
        await send_fast(cast("ReconnectingLink", recorder), file)
    assert sum(size for _, size in recorder.sent) == 16_000
    assert clock.time_s == 100.0
