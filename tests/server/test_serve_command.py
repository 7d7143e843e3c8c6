from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from audiokv.models.base import WeightOptions
from audiokv.server.command import add_arguments, run
from audiokv.server.config import ServerConfig
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import WeightsError
from audiokv.streaming.messages import Start, encode
from audiokv.streaming.policy.dialect import DialectPrior
from audiokv.streaming.speakers import FixedSpeaker, SpeakerTracker
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer, speech
from tests.server.running import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.models.base import Recognizer

ROOT = Path(__file__).parents[2]
PROGRAM = """
import argparse, sys
from audiokv.server.command import add_arguments, run
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer
parser = argparse.ArgumentParser()
add_arguments(parser)
sys.exit(run(parser.parse_args(), lambda *_: ScriptedRecognizer(), lambda: LoudnessDetector, None))
"""


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(flags)


def never(*_: object) -> Any:
    raise AssertionError("the model must not be loaded")


def load_detector() -> Callable[[], LoudnessDetector]:
    return LoudnessDetector


def test_every_setting_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    text = capsys.readouterr().out
    for flag in ("--config", "--host", "--max-connections-per-ip", "--allow-anonymous", "--model"):
        assert flag in text
    assert parse("--port", "1", "--allow-anonymous").port == "1"
    assert parse().allow_anonymous is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--port", "http"], "port cannot be 'http'"),
        (["--policy", "coin"], "'coin'"),
        (["--audio-budget-slots", "9"], "audio_budget_slots is 9"),
        (["--host", "0.0.0.0"], "lets everyone in"),  # noqa: S104  not bound
        (["--config", "/no/such/file.toml"], "/no/such/file.toml"),
    ],
)
def test_a_bad_setting_is_explained_before_anything_is_loaded(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(parse(*flags), never, load_detector, never) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def test_an_unknown_variable_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUDIOKV_PROT", "1")
    assert run(parse(), never, load_detector, never) == 2
    assert "'prot'" in capsys.readouterr().err


def test_missing_weights_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    def load(model: str, *_: object) -> Recognizer:
        raise WeightsError("no_weights", f"No weights of {model}.", "Install them.")

    assert run(parse("--model", "whisper-huge"), load, load_detector, never) == 2
    assert "No weights of whisper-huge.\nInstall them.\n" in capsys.readouterr().err


def test_the_bound_of_the_cache_reaches_the_model() -> None:
    seen: list[CacheOptions] = []

    def load(_model: str, cache: CacheOptions, _weights: object) -> Recognizer:
        seen.append(cache)
        raise KeyboardInterrupt

    assert run(parse(), load, load_detector, never) == 130
    bounded = parse("--audio-budget-slots", "120", "--policy", "h2o")
    assert run(bounded, load, load_detector, never) == 130
    assert seen == [CacheOptions(None, "audiokv"), CacheOptions(120, "h2o")]


def test_the_way_to_load_the_weights_reaches_the_model() -> None:
    seen: list[WeightOptions] = []

    def load(_model: str, _cache: object, weights: WeightOptions) -> Recognizer:
        seen.append(weights)
        raise KeyboardInterrupt

    wanted = parse("--adapter", "some/adapter", "--weights", "int4", "--dtype", "bfloat16")
    assert run(wanted, load, load_detector, never) == 130
    assert seen == [WeightOptions("some/adapter", "int4", "bfloat16")]


def test_a_dialect_reaches_the_model_by_name_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = tmp_path / "audiokv" / "dialects"
    folder.mkdir(parents=True)
    DialectPrior("scots", np.eye(1, 20), np.full(1, 1.25)).save(folder / "scots.json")
    seen: list[CacheOptions] = []

    def load(_model: str, cache: CacheOptions, _weights: object) -> Recognizer:
        seen.append(cache)
        raise KeyboardInterrupt

    budget = ("--audio-budget-slots", "120", "--dialect")
    for wanted in ("scots", str(folder / "scots.json")):
        assert run(parse(*budget, wanted), load, load_detector, never) == 130
    assert [one.prior.factors.tolist() for one in seen if one.prior] == [[1.25], [1.25]]
    assert run(parse(*budget, "welsh"), load, load_detector, never) == 2
    assert "'welsh'" in capsys.readouterr().err


def test_voices_are_told_apart_only_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load_encoder() -> Any:
        raise WeightsError("no_weights", "No speaker encoder.", "Install it.")

    def load(*_: object) -> Recognizer:
        return ScriptedRecognizer()

    assert run(parse("--speakers"), load, load_detector, load_encoder) == 2
    assert "No speaker encoder.\nInstall it.\n" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "kind"), [(["--speakers"], SpeakerTracker), ([], FixedSpeaker)])
def test_what_tells_voices_apart_reaches_the_server(
    flags: list[str], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def open_server(_config: ServerConfig, **parts: Any) -> None:
        seen.append(parts["open_speaker"]())
        raise KeyboardInterrupt

    monkeypatch.setattr("audiokv.server.command.open_server", open_server)
    loaders = (lambda *_: ScriptedRecognizer(), load_detector, lambda: lambda samples: samples)
    assert run(parse(*flags), *loaders) == 130
    assert [type(speaker) for speaker in seen] == [kind]


def test_an_interrupted_load_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    def load(*_: object) -> Recognizer:
        raise KeyboardInterrupt

    assert run(parse(), load, load_detector, never) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_library_s_talk_of_missing_gpu_kernels_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(*_: object) -> Recognizer:
        logging.getLogger("torchao").warning("no such kernel")
        logging.getLogger("torchao").error("broken")
        raise KeyboardInterrupt

    run(parse(), load, load_detector, never)
    assert caplog.messages == ["broken"]


def test_a_port_in_use_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    async def occupy() -> int:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server:
            port: int = server.sockets[0].getsockname()[1]
            return await asyncio.to_thread(
                run,
                parse("--port", str(port)),
                lambda *_: ScriptedRecognizer(),
                load_detector,
                never,
            )

    assert asyncio.run(occupy()) == 2
    assert "is in use" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_clients_and_ends_the_program(number: signal.Signals) -> None:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("AUDIOKV_")},
        "AUDIOKV_TOKEN": "correct-horse",
    }
    with subprocess.Popen(  # noqa: S603  our own interpreter and program
        [sys.executable, "-c", PROGRAM, "--port", "0", "--log-level", "debug"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("Captions with"):
            lines.append(program.stdout.readline())
            assert lines[-1], program.communicate()
        url = lines[-1].split()[-1].replace("http", "ws", 1) + "v1/stream"

        async def meet() -> int | None:
            header = {"Authorization": "Bearer correct-horse"}
            async with connect(url, additional_headers=header) as client:
                await client.send('{"type": "start", "encoding": "alaw", "sample_rate": 8000}')
                await client.recv()
                program.send_signal(number)
                await client.wait_closed()
                return client.close_code

        assert asyncio.run(asyncio.wait_for(meet(), PATIENCE_S)) == 1001
        rest, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0
    printed = "".join(lines) + rest
    assert printed.count("token = ******** (environment)") == 1
    assert len(lines) == len(ServerConfig.__slots__) + 1
    assert "stream s-" in errors
    assert "Traceback" not in errors
    assert "correct-horse" not in printed + errors


DEADLY_PROGRAM = """
import argparse, sys
from audiokv.server.command import add_arguments, run
from tests.server.doubles import LoudnessDetector, ScriptedRecognizer
class Fatal(BaseException):
    pass
class Deadly(ScriptedRecognizer):
    def decode(self, streams):
        raise Fatal("secret words")
parser = argparse.ArgumentParser()
add_arguments(parser)
sys.exit(run(parser.parse_args(), lambda *_: Deadly(), lambda: LoudnessDetector, None))
"""


def test_without_its_worker_the_program_ends_with_an_error() -> None:
    with subprocess.Popen(  # noqa: S603  our own interpreter and program
        [sys.executable, "-c", DEADLY_PROGRAM, "--port", "0"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("AUDIOKV_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        line = ""
        while not line.startswith("Captions with"):
            line = program.stdout.readline()
            assert line, program.communicate()
        url = line.split()[-1].replace("http", "ws", 1) + "v1/stream"

        async def speak() -> int | None:
            async with connect(url) as client:
                await client.send(encode(Start("pcm_s16le", 16_000)))
                await client.send(speech(1, seconds=1))
                await client.wait_closed()
                return client.close_code

        assert asyncio.run(asyncio.wait_for(speak(), PATIENCE_S)) == 1001
        _, errors = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 2
    assert "The thread that computes captions died" in errors
    assert "the worker failed: Fatal" in errors
    assert "secret" not in errors
