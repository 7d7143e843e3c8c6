from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
import srt
import webvtt

from audiokv.client.command import add_mic_arguments, add_send_arguments, run_mic, run_send
from audiokv.client.file import AudioFile
from audiokv.streaming.errors import AudioKVError
from audiokv.streaming.messages import ErrorReport
from tests.client.conftest import WORD_SAMPLES, speech

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.client.conftest import ScriptedServer


def send_arguments(*words: str | Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_send_arguments(parser)
    return parser.parse_args([str(word) for word in words])


async def send(*words: str | Path) -> int:
    return await asyncio.to_thread(run_send, send_arguments(*words))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Seven numbered words, 0.7 s."""
    path = tmp_path / "seven.wav"
    soundfile.write(path, np.frombuffer(speech(7), "<i2"), 16_000)
    return path


async def test_a_recording_becomes_text_and_subtitles(
    server: ScriptedServer, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recording.parent
    outputs = [
        part
        for kind in ("srt", "vtt", "txt", "jsonl")
        for part in (f"--{kind}", str(folder / f"out.{kind}"))
    ]
    assert await send(recording, "--fast", "--url", server.url, *outputs) == 0
    assert capsys.readouterr().out == "w1 w2 w3 w4 w5\nw6 w7\n"
    assert (folder / "out.txt").read_text() == "w1 w2 w3 w4 w5\nw6 w7\n"
    cues = list(srt.parse((folder / "out.srt").read_text()))
    assert [cue.content for cue in cues] == ["w1 w2 w3 w4 w5 w6 w7"]
    assert webvtt.read(str(folder / "out.vtt"))[0].text == "w1 w2 w3 w4 w5 w6 w7"
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["w1 w2 w3 w4 w5", "w6 w7"]


async def test_wishes_and_token_reach_the_server(
    server: ScriptedServer, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIOKV_TOKEN", "fr0m-env")
    url = ("--url", server.url, "--fast")
    await send(recording, *url, "--language", "de", "--prompt", "Leichenhalle")
    await send(recording, *url, "--token", "0ption")
    assert server.starts[0].language == "de"
    assert server.starts[0].prompt == "Leichenhalle"
    assert server.starts[0].sample_rate == 16_000
    assert server.authorizations == ["Bearer fr0m-env", "Bearer 0ption"]


async def test_several_recordings_follow_each_other_or_get_their_own_files(
    server: ScriptedServer, recording: Path
) -> None:
    other = recording.with_name("other.wav")
    shutil.copy(recording, other)
    folder = recording.parent
    await send(
        recording, other, "--fast", "--url", server.url,
        "--jsonl", folder / "all.jsonl", "--txt", folder / "{stem}.txt",
    )  # fmt: skip
    lines = [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]
    assert [line["start_ms"] for line in lines] == [0, 500, 700, 1_200]
    assert [line["segment"] for line in lines] == [0, 1, 2, 3]
    assert (folder / "seven.txt").read_text() == (folder / "other.txt").read_text() != ""


async def test_real_time_is_the_default_and_gives_the_same_text(
    server: ScriptedServer, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await send(recording, "--url", server.url) == 0
    assert capsys.readouterr().out == "w1 w2 w3 w4 w5\nw6 w7\n"


async def test_a_misspelt_recording_is_found_before_anything_is_sent(
    server: ScriptedServer, recording: Path
) -> None:
    with pytest.raises(AudioKVError, match=r"missing\.wav"):
        await send(recording, recording.with_name("missing.wav"), "--url", server.url)
    assert server.starts == []


async def test_an_output_that_is_a_recording_is_refused(
    server: ScriptedServer, recording: Path
) -> None:
    with pytest.raises(AudioKVError, match="overwrite"):
        await send(recording, "--txt", recording, "--url", server.url)
    with AudioFile(recording) as file:
        assert file.duration_ms == 700


async def test_a_refusal_of_the_server_ends_with_its_words(
    server: ScriptedServer, recording: Path
) -> None:
    server.refusals = [(ErrorReport("no", "Not today.", "Come tomorrow."), 1008)]
    with pytest.raises(AudioKVError, match=r"Not today\. Come tomorrow\."):
        await send(recording, "--fast", "--url", server.url)


async def test_what_came_before_a_failure_is_in_the_files(
    server: ScriptedServer, recording: Path
) -> None:
    def refuse_later(n_message: int) -> str | None:
        if n_message < 4:
            return None
        server.refusals = [(ErrorReport("no", "Not today.", ""), 1008)] * 9
        return "cut after"

    server.on_message = refuse_later
    text = recording.with_name("out.txt")
    long = recording.with_name("long.wav")
    soundfile.write(long, np.frombuffer(speech(60), "<i2"), 16_000)
    with pytest.raises(AudioKVError, match="Not today"):
        await send(long, "--fast", "--url", server.url, "--txt", text)
    assert text.read_text().startswith("w1 w2 w3 w4 w5\n")


async def test_a_full_disk_ends_the_run(server: ScriptedServer, recording: Path) -> None:
    with pytest.raises(AudioKVError, match="/dev/full"):
        await send(recording, "--fast", "--url", server.url, "--txt", "/dev/full")


async def program(*words: str | Path, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "audiokv", *map(str, words),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
    )  # fmt: skip


async def test_the_program_fails_with_an_exit_code_and_without_a_traceback(
    recording: Path,
) -> None:
    process = await program("send", recording, "--url", "ws://127.0.0.1:9/v1/stream")
    out, errors = await process.communicate()
    assert process.returncode not in (0, None)
    assert out == b""
    assert b"refuses the connection" in errors
    assert b"Traceback" not in errors


async def test_nobody_reading_the_text_is_no_disaster(
    server: ScriptedServer, recording: Path
) -> None:
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m audiokv send {recording} --fast --url {server.url} | true; "
        "exit ${PIPESTATUS[0]}",
        stderr=asyncio.subprocess.PIPE,
        executable="/bin/bash",
    )
    _, errors = await process.communicate()
    assert b"Traceback" not in errors
    assert b"Exception ignored" not in errors


def test_the_client_needs_no_torch() -> None:
    code = (
        "import sys, audiokv.client.command; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'sounddevice', 'audiokv.server')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603  our own code


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
