"""``audiokv mic``, with a pretended sound library and with a real sound system."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.client import command
from audiokv.client.command import add_mic_arguments, run_mic
from audiokv.client.mic import SILENT_DEVICE_S
from audiokv.streaming.errors import AudioKVError
from audiokv.streaming.messages import ErrorReport
from tests.client.conftest import COUNTERS, WORD_SAMPLES, speech
from tests.client.fake_sounddevice import FakeSounddevice
from tests.client.listening import program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.client.conftest import ManualClock, ScriptedServer


@pytest.fixture
def mic_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    add_mic_arguments(parser)
    return parser


def test_a_missing_sound_library_is_reported(
    mic_parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(AudioKVError, match=r"audiokv\[mic\]"):
        run_mic(mic_parser.parse_args([]))


@pytest.fixture
def portaudio(monkeypatch: pytest.MonkeyPatch) -> FakeSounddevice:
    """A sound library with two microphones, in place of the real one."""
    fake = FakeSounddevice()
    monkeypatch.setattr(command, "load_sounddevice", lambda: fake)
    return fake


async def speak(portaudio: FakeSounddevice, server: ScriptedServer, n_words: int) -> None:
    """Say words once the microphone runs, as its thread would, and wait until they arrived."""
    await until(lambda: "start" in portaudio.deeds)
    audio = speech(n_words)
    for first in range(0, len(audio), 320):
        await asyncio.to_thread(portaudio.record, audio[first : first + 320])
    await until(lambda: any(s.n_samples == n_words * WORD_SAMPLES for s in server.streams.values()))


async def test_ctrl_c_ends_with_the_last_words(
    server: ScriptedServer,
    portaudio: FakeSounddevice,
    mic_parser: argparse.ArgumentParser,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.cache = COUNTERS
    args = mic_parser.parse_args(
        ["--url", server.url, "--show-cache", "--txt", str(tmp_path / "{stem}.txt")]
    )
    running = asyncio.create_task(command._mic(args))
    await speak(portaudio, server, 7)
    portaudio.record(bytes(320), has_overflow=True)
    os.kill(os.getpid(), signal.SIGINT)
    await running
    assert (tmp_path / "microphone.txt").read_text() == "w1 w2 w3 w4 w5\nw6 w7\n"
    shown = capsys.readouterr()
    assert shown.out == "w1 w2 w3 w4 w5\nw6 w7\n"
    assert "cache 5/6 slots of 9 seen" in shown.err
    assert "Listening" in shown.err
    assert "lost audio 1 times" in shown.err
    assert portaudio.deeds == ["start", "stop", "close"]


@pytest.fixture
def manual_time(monkeypatch: pytest.MonkeyPatch, manual_clock: ManualClock) -> ManualClock:
    """The clock by which the commands watch a microphone, in the test's hands."""
    monkeypatch.setattr(command, "LoopClock", lambda: manual_clock)
    return manual_clock


async def test_an_unplugged_microphone_ends_with_what_was_said(
    server: ScriptedServer,
    portaudio: FakeSounddevice,
    mic_parser: argparse.ArgumentParser,
    manual_time: ManualClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = asyncio.create_task(command._mic(mic_parser.parse_args(["--url", server.url])))
    await speak(portaudio, server, 3)
    manual_time.advance(SILENT_DEVICE_S)
    await until(lambda: len(manual_time.sleeps) > 1)
    manual_time.advance(SILENT_DEVICE_S)
    with pytest.raises(AudioKVError, match="Check that it is plugged in"):
        await running
    assert capsys.readouterr().out == "w1 w2 w3\n"


async def test_a_refusal_stops_the_microphone(
    server: ScriptedServer, portaudio: FakeSounddevice, mic_parser: argparse.ArgumentParser
) -> None:
    server.refusals = [(ErrorReport("no", "Not today.", "Come tomorrow."), 1008)]
    with pytest.raises(AudioKVError, match="Come tomorrow"):
        await command._mic(mic_parser.parse_args(["--url", server.url]))
    assert portaudio.deeds[-1:] in ([], ["close"])


def test_devices_are_listed_with_the_default_marked(
    portaudio: FakeSounddevice,
    mic_parser: argparse.ArgumentParser,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert portaudio.devices
    assert run_mic(mic_parser.parse_args(["--list-devices"])) == 0
    assert capsys.readouterr().out == "*  1 Webcam (48000 Hz)\n   2 Headset (44100 Hz)\n"


class SoundSystem:
    """A PulseAudio of its own with a null sink whose monitor is the microphone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "pulse.sock"
        self.variables = {
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "PULSE_SERVER": f"unix:{self.socket}",
        }

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables}

    def command(self) -> list[str]:
        modules = [
            f"module-native-protocol-unix auth-anonymous=1 socket={self.socket}",
            "module-null-sink sink_name=virt rate=48000 channels=1",
            "module-remap-source source_name=virtmic master=virt.monitor",
            "module-always-sink",
        ]
        loads = [part for module in modules for part in ("-L", module)]
        return [
            "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no",
            "--realtime=no", "--high-priority=no", *loads,
        ]  # fmt: skip

    async def call(self, *words: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *words,
            env=self.environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait()


@pytest.fixture
async def sound_system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SoundSystem]:
    system = SoundSystem(tmp_path_factory.mktemp("pa"))
    (system.folder / "run").mkdir(mode=0o700)
    (system.folder / ".asoundrc").write_text("pcm.!default { type pulse }\n")
    process = await asyncio.create_subprocess_exec(
        *system.command(), env=system.environment, stderr=asyncio.subprocess.DEVNULL
    )
    while await system.call("pactl", "set-default-source", "virtmic"):
        assert process.returncode is None, "pulseaudio ended by itself"
        await asyncio.sleep(0.05)
    yield system
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


def correlations(heard: np.ndarray, played: np.ndarray, piece: int = 1_600) -> list[float]:
    """Correlation of each piece of a sound with the part of what was heard that fits it best.

    Piece by piece, so that a gap (a busy machine) costs the pieces it is in and not the rest.
    """
    windows = np.lib.stride_tricks.sliding_window_view(heard, piece)
    sums, squares = windows.sum(axis=1), (windows**2).sum(axis=1)
    spread = np.sqrt(np.maximum(squares - sums**2 / piece, 1.0))
    found = []
    for first in range(0, len(played) - piece + 1, piece):
        wanted = played[first : first + piece] - played[first : first + piece].mean()
        products = np.correlate(heard, wanted, "valid")
        found.append(float((products / spread / np.linalg.norm(wanted)).max()))
    return found


@pytest.mark.microphone
async def test_what_is_played_into_the_microphone_reaches_the_server(
    server: ScriptedServer, sound_system: SoundSystem, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    played = np.convolve(rng.standard_normal(32_000), np.hanning(9) / 4.5, "same") * 0.2
    soundfile.write(tmp_path / "played.wav", played, 16_000)
    text = tmp_path / "out.jsonl"
    process = await program("mic", "--url", server.url, "--jsonl", text, **sound_system.variables)
    try:
        await until(lambda: any(s.n_samples for s in server.streams.values()))
        assert await sound_system.call("paplay", "--device=virt", str(tmp_path / "played.wav")) == 0
        (stream,) = server.streams.values()
        n_before = stream.n_samples
        await until(lambda: stream.n_samples > n_before + 8_000)
        process.send_signal(signal.SIGINT)
        out, errors = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0, errors
    heard = np.frombuffer(stream.received, "<i2").astype(float)
    found = correlations(heard, played)
    assert sum(r > 0.95 for r in found) >= len(found) // 2
    n_words = len(heard) // WORD_SAMPLES
    assert sum(len(c.words) for c in stream.captions if c.is_final) == n_words
    assert (
        len(out.splitlines())
        == len(text.read_text().splitlines())
        == len([c for c in stream.captions if c.is_final])
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something another process does."""
    while not condition():  # noqa: ASYNC110  nothing here could set an event
        await asyncio.sleep(0.01)


@pytest.mark.microphone
async def test_the_devices_are_listed(sound_system: SoundSystem) -> None:
    process = await program("mic", "--list-devices", **sound_system.variables)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert any(line.startswith("*") and "default" in line for line in out.decode().splitlines())


@pytest.mark.microphone
async def test_an_unknown_device_lists_what_there_is(
    server: ScriptedServer, sound_system: SoundSystem
) -> None:
    process = await program(
        "mic", "--device", "bagpipe", "--url", server.url, **sound_system.variables
    )
    _, errors = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"There is no device 'bagpipe'" in errors
    assert b"default" in errors
