"""The microphone as a source, through PortAudio.

`sounddevice` is imported only when a microphone is wanted: it is an optional dependency, and its
import fails where PortAudio is missing.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    SAMPLE_RATE_HZ,
    AudioFormat,
)
from audiokv.streaming.errors import AudioKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from audiokv.client.timing import Clock

BLOCK_MS = 10
SILENT_DEVICE_S = 5.0
"""A device that gives no block at all for so long has gone; silence still gives blocks."""

_INVALID_SAMPLE_RATE = -9997
_DEVICE_UNAVAILABLE = -9985
_COMMON_RATES_HZ = (48_000, 44_100, 32_000, 8_000)


class MicrophoneError(AudioKVError):
    """The microphone cannot be used."""


@dataclass(frozen=True, slots=True)
class InputDevice:
    """A device that records.

    Attributes:
        index: Its number, which ``--device`` takes.
        name: Its name, which ``--device`` takes too, or a part of it.
        rate_hz: The rate it prefers.
        is_default: Whether it is used when none is named.
    """

    index: int
    name: str
    rate_hz: int
    is_default: bool


def load_sounddevice() -> ModuleType:
    """Return the module that reaches PortAudio.

    Raises:
        MicrophoneError: It or PortAudio is not installed.
    """
    try:
        return importlib.import_module("sounddevice")
    except ModuleNotFoundError as error:
        raise MicrophoneError(
            "no_sounddevice",
            "The Python package sounddevice is not installed.",
            "Install it: pip install 'audiokv[mic]'.",
        ) from error
    except OSError as error:
        raise MicrophoneError(
            "no_portaudio",
            f"The PortAudio library cannot be loaded ({error}).",
            "Install it: on Debian and Ubuntu, sudo apt-get install libportaudio2.",
        ) from error


def list_devices(sounddevice: ModuleType) -> list[InputDevice]:
    """Return every device that records."""
    default = sounddevice.default.device[0]
    return [
        InputDevice(
            index, device["name"], round(device["default_samplerate"]), is_default=index == default
        )
        for index, device in enumerate(sounddevice.query_devices())
        if device["max_input_channels"] > 0
    ]


def _choices(sounddevice: ModuleType) -> str:
    return "; ".join(f"{device.index}: {device.name}" for device in list_devices(sounddevice))


class Microphone:
    """One input device, mono, 16-bit, in blocks of 10 ms.

    It runs at 16 kHz; where the device refuses that, at the rate it prefers.

    Args:
        wanted: Number or (part of the) name of a device, or None for the default one.
        sounddevice: The module that reaches PortAudio.

    Raises:
        MicrophoneError: There is no such device, or it cannot record.
    """

    def __init__(self, wanted: str | None, sounddevice: ModuleType) -> None:
        self._sounddevice = sounddevice
        self._wanted = int(wanted) if wanted is not None and wanted.isdigit() else wanted
        self.n_overflows = 0
        self._n_blocks = 0
        self._preferred_hz = self._query()
        self.audio_format = AudioFormat(sample_rate_hz=self._working_rate_hz())

    def _query(self) -> int:
        """Return the rate the device prefers."""
        try:
            device = self._sounddevice.query_devices(self._wanted, "input")
        except (ValueError, self._sounddevice.PortAudioError) as error:
            if not list_devices(self._sounddevice):
                raise MicrophoneError(
                    "no_microphone",
                    "There is no microphone.",
                    "Plug one in, or give this user access to it.",
                ) from error
            wanted = "default microphone" if self._wanted is None else f"device {self._wanted!r}"
            raise MicrophoneError(
                "unknown_device",
                f"There is no {wanted}, or more than one fits.",
                f"Choose one with --device: {_choices(self._sounddevice)}.",
            ) from error
        return int(device["default_samplerate"])

    def _working_rate_hz(self) -> int:
        preferred = [
            rate_hz
            for rate_hz in (self._preferred_hz, *_COMMON_RATES_HZ)
            if MIN_SAMPLE_RATE_HZ <= rate_hz <= MAX_SAMPLE_RATE_HZ
        ]
        for rate_hz in (SAMPLE_RATE_HZ, *preferred):
            try:
                self._sounddevice.check_input_settings(
                    device=self._wanted, channels=1, dtype="int16", samplerate=rate_hz
                )
            except self._sounddevice.PortAudioError as error:
                if _code(error) != _INVALID_SAMPLE_RATE:
                    raise self._failure(error) from error
            else:
                return rate_hz
        raise MicrophoneError(
            "no_rate",
            f"The microphone records at none of the rates from {MIN_SAMPLE_RATE_HZ} to "
            f"{MAX_SAMPLE_RATE_HZ} Hz.",
            f"Choose another with --device: {_choices(self._sounddevice)}.",
        )

    def _failure(self, error: Exception) -> MicrophoneError:
        if _code(error) == _DEVICE_UNAVAILABLE or "busy" in str(error).lower():
            return MicrophoneError(
                "busy_device",
                f"The microphone is in use or not available ({error}).",
                "Close the program that records from it, or choose another with --device.",
            )
        return MicrophoneError(
            "broken_device",
            f"The microphone cannot be opened: {error}.",
            f"Choose another with --device: {_choices(self._sounddevice)}.",
        )

    @contextmanager
    def recording(self, hear: Callable[[bytes], None]) -> Iterator[None]:
        """Record while the block of code runs.

        Args:
            hear: Called on the event loop with each block of 16-bit samples.

        Raises:
            MicrophoneError: The device cannot be opened.
        """
        loop = asyncio.get_running_loop()

        def receive(block: bytes) -> None:
            self._n_blocks += 1
            hear(block)

        def callback(block: object, _n_frames: int, _time: object, status: object) -> None:
            # Runs in PortAudio's thread with a deadline: hand over, nothing else.
            if getattr(status, "input_overflow", False):
                self.n_overflows += 1
            loop.call_soon_threadsafe(receive, bytes(block))  # type: ignore[call-overload]

        rate_hz = self.audio_format.sample_rate_hz
        try:
            stream = self._sounddevice.RawInputStream(
                samplerate=rate_hz,
                blocksize=rate_hz * BLOCK_MS // 1000,
                device=self._wanted,
                channels=1,
                dtype="int16",
                latency="low",
                callback=callback,
            )
            stream.start()
        except self._sounddevice.PortAudioError as error:
            raise self._failure(error) from error
        try:
            yield
        finally:
            stream.stop()
            stream.close()

    async def watch(self, clock: Clock) -> None:
        """Return never while the device gives blocks.

        Raises:
            MicrophoneError: It has stopped; it was unplugged, for example.
        """
        while True:
            n_before = self._n_blocks
            await clock.sleep(SILENT_DEVICE_S)
            if self._n_blocks == n_before:
                raise MicrophoneError(
                    "device_gone",
                    f"The microphone has given nothing for {SILENT_DEVICE_S:.0f} s.",
                    "Check that it is plugged in, then start again.",
                )


def _code(error: Exception) -> int | None:
    return error.args[1] if len(error.args) > 1 else None
