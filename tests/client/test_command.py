from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
import srt
import webvtt

from audiokv.client.command import add_send_arguments, run_send
from audiokv.client.file import AudioFile
from audiokv.streaming.errors import AudioKVError
from audiokv.streaming.messages import ErrorReport
from tests.client.conftest import COUNTERS, speech
from tests.client.listening import program

if TYPE_CHECKING:
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
    named = ("--channel-labels", "Ada")
    await send(recording, *url, "--language", "de", "--prompt", "Leichenhalle", *named)
    await send(recording, *url, "--token", "0ption")
    assert server.starts[0].language == "de"
    assert server.starts[0].prompt == "Leichenhalle"
    assert server.starts[0].channel_labels == ("Ada",)
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


async def test_the_cache_is_shown_on_request(
    server: ScriptedServer, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.cache = COUNTERS
    assert await send(recording, "--fast", "--url", server.url) == 0
    assert capsys.readouterr().err == ""
    assert await send(recording, "--fast", "--url", server.url, "--show-cache") == 0
    assert "cache 5/6 slots of 9 seen" in capsys.readouterr().err


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
        if n_message < 12:  # by then what the first ones said was acknowledged, so it arrived
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
