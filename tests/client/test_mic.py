from __future__ import annotations

import asyncio
import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from audiokv.client.mic import (
    InputDevice,
    Microphone,
    MicrophoneError,
    list_devices,
    load_sounddevice,
)
from tests.client.fake_sounddevice import UNAVAILABLE, FakeSounddevice, PortAudioError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.client.conftest import ManualClock


@pytest.fixture
def portaudio() -> FakeSounddevice:
    return FakeSounddevice()


def microphone(portaudio: FakeSounddevice, wanted: str | None = None) -> Microphone:
    return Microphone(wanted, cast("ModuleType", portaudio))


def test_devices_that_record_are_listed(portaudio: FakeSounddevice) -> None:
    assert list_devices(cast("ModuleType", portaudio)) == [
        InputDevice(1, "Webcam", 48_000, is_default=True),
        InputDevice(2, "Headset", 44_100, is_default=False),
    ]


@pytest.mark.parametrize(
    ("rates_hz", "wanted", "chosen_hz"),
    [
        ({16_000, 48_000}, None, 16_000),
        ({44_100, 48_000}, None, 48_000),
        ({44_100, 48_000}, "Headset", 44_100),
        ({8_000}, "2", 8_000),
    ],
)
def test_it_records_at_sixteen_kilohertz_or_as_the_device_likes(
    portaudio: FakeSounddevice, rates_hz: set[int], wanted: str | None, chosen_hz: int
) -> None:
    portaudio.rates_hz = rates_hz
    assert microphone(portaudio, wanted).audio_format.sample_rate_hz == chosen_hz


async def test_blocks_of_ten_milliseconds_reach_the_loop(portaudio: FakeSounddevice) -> None:
    heard: list[bytes] = []
    device = microphone(portaudio, "1")
    with device.recording(heard.append):
        await asyncio.to_thread(portaudio.record, b"\x01\x00" * 160)
        await asyncio.to_thread(portaudio.record, b"\x02\x00" * 160, has_overflow=True)
        await asyncio.sleep(0)
    assert heard == [b"\x01\x00" * 160, b"\x02\x00" * 160]
    assert device.n_overflows == 1
    assert portaudio.deeds == ["start", "stop", "close"]
    settings = {k: v for k, v in portaudio.opened.items() if k != "callback"}
    assert settings == {
        "samplerate": 16_000,
        "blocksize": 160,
        "device": 1,
        "channels": 1,
        "dtype": "int16",
        "latency": "low",
    }


def without_inputs(portaudio: FakeSounddevice) -> None:
    portaudio.devices = portaudio.devices[:1]
    portaudio.default = SimpleNamespace(device=[-1, 0])


def without_default(portaudio: FakeSounddevice) -> None:
    portaudio.default = SimpleNamespace(device=[-1, 0])


def without_rates(portaudio: FakeSounddevice) -> None:
    portaudio.rates_hz = set()


def taken_when_checked(portaudio: FakeSounddevice) -> None:
    portaudio.rates_hz = set()
    portaudio.check_code = UNAVAILABLE


def untouched(_: FakeSounddevice) -> None:
    return


@pytest.mark.parametrize(
    ("prepare", "wanted", "code", "remedy"),
    [
        (without_inputs, None, "no_microphone", "Plug one in"),
        (without_inputs, "Webcam", "no_microphone", "Plug one in"),
        (without_default, None, "unknown_device", "1: Webcam; 2: Headset"),
        (untouched, "Bagpipe", "unknown_device", "1: Webcam; 2: Headset"),
        (untouched, "7", "unknown_device", "1: Webcam; 2: Headset"),
        (untouched, "e", "unknown_device", "1: Webcam; 2: Headset"),
        (without_rates, None, "no_rate", "--device"),
        (taken_when_checked, None, "busy_device", "Close the program"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    portaudio: FakeSounddevice,
    prepare: Callable[[FakeSounddevice], None],
    wanted: str | None,
    code: str,
    remedy: str,
) -> None:
    prepare(portaudio)
    with pytest.raises(MicrophoneError) as failure:
        microphone(portaudio, wanted)
    assert failure.value.code == code
    assert remedy in failure.value.remedy


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PortAudioError("Device unavailable", UNAVAILABLE), "busy_device"),
        (PortAudioError("Unanticipated host error: Device or resource busy", -9999), "busy_device"),
        (PortAudioError("Internal PortAudio error", -9986), "broken_device"),
        (PortAudioError("Odd"), "broken_device"),
    ],
)
async def test_a_device_that_does_not_open_is_an_error(
    portaudio: FakeSounddevice, error: PortAudioError, code: str
) -> None:
    portaudio.start_error = error
    with pytest.raises(MicrophoneError) as failure, microphone(portaudio).recording(lambda _: None):
        pass
    assert failure.value.code == code


async def test_a_device_that_falls_silent_for_good_has_gone(
    portaudio: FakeSounddevice, manual_clock: ManualClock
) -> None:
    device = microphone(portaudio)
    with device.recording(lambda _: None):
        watching = asyncio.create_task(device.watch(manual_clock))
        for _ in range(3):
            await asyncio.sleep(0)
            portaudio.record(bytes(320))
            await asyncio.sleep(0)
            manual_clock.advance(5.0)
        await asyncio.sleep(0)
        assert not watching.done()
        await asyncio.sleep(0)
        manual_clock.advance(5.0)
        with pytest.raises(MicrophoneError, match="given nothing"):
            await watching


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ModuleNotFoundError("No module named 'sounddevice'"), r"audiokv\[mic\]"),
        (OSError("PortAudio library not found"), "apt-get install libportaudio2"),
    ],
)
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str
) -> None:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(MicrophoneError, match=remedy):
        load_sounddevice()


@pytest.mark.microphone
def test_portaudio_itself_answers() -> None:
    sounddevice = load_sounddevice()
    assert isinstance(list_devices(sounddevice), list)
