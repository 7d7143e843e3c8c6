"""A stand-in for the sounddevice module."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

INVALID_SAMPLE_RATE = -9997
UNAVAILABLE = -9985


class PortAudioError(Exception):
    """As sounddevice raises it: a message and PortAudio's number."""


class FakeSounddevice:
    """Stands in for sounddevice with the devices and faults a test wants."""

    PortAudioError = PortAudioError

    def __init__(self) -> None:
        self.devices: list[dict[str, Any]] = [
            {"name": "Speaker", "max_input_channels": 0, "default_samplerate": 44_100.0},
            {"name": "Webcam", "max_input_channels": 1, "default_samplerate": 48_000.0},
            {"name": "Headset", "max_input_channels": 2, "default_samplerate": 44_100.0},
        ]
        self.default = SimpleNamespace(device=[1, 0])
        self.rates_hz = {16_000, 44_100, 48_000}
        self.check_code = INVALID_SAMPLE_RATE
        self.start_error: PortAudioError | None = None
        self.opened: dict[str, Any] = {}
        self.deeds: list[str] = []

    def query_devices(self, wanted: object = None, kind: str | None = None) -> Any:
        if kind is None:
            return self.devices
        if wanted is None:
            found = [d for i, d in enumerate(self.devices) if i == self.default.device[0]]
            if not found:
                raise PortAudioError("Error querying device -1")
        else:
            found = [
                d
                for i, d in enumerate(self.devices)
                if d["max_input_channels"] and (i == wanted or str(wanted) in d["name"])
            ]
        if len(found) != 1:
            raise ValueError("No input device matching")
        return found[0]

    def check_input_settings(self, *, samplerate: int, **_: object) -> None:
        if samplerate not in self.rates_hz:
            raise PortAudioError("Invalid sample rate", self.check_code)

    def RawInputStream(self, **settings: Any) -> FakeSounddevice:  # noqa: N802  its real name
        self.opened = settings
        return self

    def start(self) -> None:
        if self.start_error is not None:
            raise self.start_error
        self.deeds.append("start")

    def stop(self) -> None:
        self.deeds.append("stop")

    def close(self) -> None:
        self.deeds.append("close")

    def record(self, block: bytes, *, has_overflow: bool = False) -> None:
        status = SimpleNamespace(input_overflow=has_overflow)
        self.opened["callback"](memoryview(block), len(block) // 2, None, status)
