"""The compose file: its form, and each service's own command and configuration run by hand."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiomqtt import Client, MqttError, ProtocolVersion

from audiokv.server.command import add_arguments
from audiokv.server.config_loading import load_config
from tests.server.mqtt.mosquitto import HOST, PATIENCE_S, free_port
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from audiokv.server.config import ServerConfig

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
SECRETS = {
    "AUDIOKV_TOKEN": "correct-horse",
    "MQTT_PASSWORD": "server-secret",
    "MQTT_VIEWER_PASSWORD": "viewer-secret",
    "SIP_PASSWORD": "sip-secret",
    "ARI_PASSWORD": "ari-secret",
}


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """Fill in variables as the compose specification says: ${A}, ${A:-default}, ${A:?message}."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if variables.get(name):
            return variables[name]
        assert kind != "?", f"{name} is required"
        return rest or ""

    return VARIABLE.sub(value, text)


# Form


def is_valid(file: Path) -> bool:
    """Return whether the schema of the compose specification accepts a file."""
    words = ["check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def test_the_file_is_valid_by_the_compose_specification() -> None:
    assert is_valid(ROOT / "docker-compose.yml")


@pytest.mark.parametrize("fault", [{"ports": "8765:8765"}, {"helthcheck": {}}, {"depends_on": 1}])
def test_the_specification_would_notice_a_fault(tmp_path: Path, fault: dict[str, object]) -> None:
    changed = compose()
    changed["services"]["server"].update(fault)
    file = tmp_path / "docker-compose.yml"
    file.write_text(yaml.safe_dump(changed))
    assert not is_valid(file)


def test_nothing_starts_without_its_secrets() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    required = {name for name, kind, _ in VARIABLE.findall(text) if kind == "?"}
    assert required == {"AUDIOKV_TOKEN", "MQTT_PASSWORD", "MQTT_VIEWER_PASSWORD"}
    for script in ("mosquitto", "asterisk"):
        start = (ROOT / "deploy" / script / "start.sh").read_text("utf-8")
        asked = set(re.findall(r'"\$\{(\w+):\?', start))
        assert asked <= set(service(script)["environment"]), script


def test_captions_and_broker_are_open_to_this_machine_only_by_default() -> None:
    for name in ("server", "mosquitto"):
        for port in service(name)["ports"]:
            assert interpolated(port, {}).startswith("127.0.0.1:"), port


def test_only_telephony_needs_its_profile() -> None:
    profiles = {name: s.get("profiles", []) for name, s in compose()["services"].items()}
    assert profiles == {"server": [], "mosquitto": [], "asterisk": ["telephony"]}


def test_what_the_server_writes_is_a_volume() -> None:
    server = service("server")
    assert server["volumes"] == ["models:/models"]
    assert server["read_only"] is True
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    for variable in ("AUDIOKV_CACHE", "HF_HOME"):
        assert re.search(rf"{variable}=/models/\w+", dockerfile)
    assert {volume.split(":")[0] for volume in server["volumes"]} <= set(compose()["volumes"])


def test_every_file_that_is_mounted_or_built_from_exists() -> None:
    for name, found in compose()["services"].items():
        for volume in found.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).is_dir(), name
        if "build" in found:
            context = (
                found["build"] if isinstance(found["build"], str) else found["build"]["context"]
            )
            assert (ROOT / context / "Dockerfile").is_file(), name


# The server's command


def server_settings(variables: Mapping[str, str]) -> ServerConfig:
    """Return what ``audiokv`` makes of the service's command and environment."""
    server = service("server")
    command, *flags = [interpolated(word, variables) for word in server["command"]]
    assert command == "serve"
    environment = {
        name: interpolated(str(value), variables) for name, value in server["environment"].items()
    }
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parsed = vars(parser.parse_args(flags))
    parsed.pop("config")
    return load_config(parsed, environment).config


def test_the_server_s_command_and_environment_are_settings_it_takes() -> None:
    config = server_settings(SECRETS)
    assert config.token == SECRETS["AUDIOKV_TOKEN"]
    assert (config.mqtt, config.mqtt_user) == ("mqtt://mosquitto:1883", "audiokv")
    assert config.mqtt_password == SECRETS["MQTT_PASSWORD"]
    assert (config.port, config.audiosocket_port) == (8765, 9092)
    published = [port.rsplit(":", 1)[1] for port in service("server")["ports"]]
    assert published == [str(config.port), str(config.audiosocket_port)]
    assert config.model == "whisper-base"
    chosen = server_settings({**SECRETS, "AUDIOKV_MODEL": "openai/whisper-small"})
    assert chosen.model == "openai/whisper-small"


def test_the_server_refuses_to_start_without_a_token() -> None:
    with pytest.raises(AssertionError, match="AUDIOKV_TOKEN is required"):
        server_settings({**SECRETS, "AUDIOKV_TOKEN": ""})


# The broker


class Broker:
    """The broker's own command, its folder moved to a temporary one and its port to a free one."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._home = folder / "mosquitto"
        shutil.copytree(ROOT / "deploy" / "mosquitto", self._home / "config")
        (self._home / "data").mkdir()
        file = self._home / "config" / "mosquitto.conf"
        text = file.read_text("utf-8")
        assert text.count("/mosquitto/") == 3
        assert text.count("listener 1883") == 1
        file.write_text(
            text.replace("/mosquitto/", f"{self._home}/").replace(
                "listener 1883", f"listener {self.port} {HOST}"
            )
        )
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, **variables: str) -> None:
        shell, script = service("mosquitto")["command"]
        self.process = await asyncio.create_subprocess_exec(
            shell,
            script.replace("/mosquitto", str(self._home)),
            env={
                "PATH": f"{os.environ['PATH']}:/usr/sbin:/usr/bin",
                "MOSQUITTO_HOME": str(self._home),
                **variables,
            },
            stderr=asyncio.subprocess.PIPE,
        )

    async def ready(self) -> None:
        assert self.process is not None
        while True:
            with suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection(HOST, self.port)
                writer.close()
                return
            assert self.process.returncode is None, "the broker ended at once"
            await asyncio.sleep(0.02)

    def client(self, user: str | None = None, password: str | None = None) -> Client:
        return Client(
            HOST, self.port, username=user, password=password, protocol=ProtocolVersion.V5
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder that the broker can reach after it gave up root's rights."""
    with tempfile.TemporaryDirectory(prefix="audiokv-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[Broker]:
    made = Broker(folder)
    secrets = {name: SECRETS[name] for name in service("mosquitto")["environment"]}
    try:
        async with asyncio.timeout(PATIENCE_S):
            await made.start(**secrets)
            await made.ready()
            yield made
    finally:
        if made.process is not None and made.process.returncode is None:
            made.process.terminate()
            await made.process.wait()


async def test_the_broker_lets_in_whom_it_knows(folder: Path) -> None:
    async with broker(folder) as running:
        for login in [(None, None), ("viewer", "wrong"), ("audiokv", "viewer-secret")]:
            with pytest.raises(MqttError):
                async with running.client(*login):
                    pass
        async with running.client("viewer", SECRETS["MQTT_VIEWER_PASSWORD"]) as viewer:
            await viewer.subscribe("$SYS/broker/version")  # what the health check asks for
            async for message in viewer.messages:
                assert b"mosquitto version" in bytes(message.payload)
                break


async def test_viewers_read_captions_and_write_nothing(folder: Path) -> None:
    async with (
        broker(folder) as running,
        running.client("audiokv", SECRETS["MQTT_PASSWORD"]) as server,
        running.client("viewer", SECRETS["MQTT_VIEWER_PASSWORD"]) as viewer,
    ):
        await viewer.subscribe("captions/#", qos=1)
        await server.subscribe("captions/#", qos=1)
        await viewer.publish("captions/v1/audiokv/s-1/final", b"forged", qos=1)
        await server.publish("captions/v1/audiokv/devices/mic/audio", b"private", qos=1)
        await server.publish("captions/v1/audiokv/s-1/final", b"said", qos=1)
        async for message in viewer.messages:
            assert message.payload == b"said"
            break
        heard = []
        async for message in server.messages:
            heard.append(message.payload)
            if len(heard) == 2:
                break
        assert heard == [b"private", b"said"]


@pytest.mark.parametrize("missing", ["MQTT_PASSWORD", "MQTT_VIEWER_PASSWORD"])
async def test_the_broker_does_not_start_without_passwords(folder: Path, missing: str) -> None:
    made = Broker(folder)
    known = {name: SECRETS[name] for name in service("mosquitto")["environment"]}
    await made.start(**{**known, missing: ""})
    assert made.process is not None
    _, errors = await made.process.communicate()
    assert made.process.returncode != 0
    assert missing.encode() in errors


async def test_server_and_broker_meet_with_these_settings(folder: Path) -> None:
    config = server_settings(SECRETS)
    async with broker(folder) as running:
        settings = {
            name: getattr(config, name)
            for name in ("mqtt_user", "mqtt_password", "mqtt_prefix", "mqtt_instance", "token")
        }
        url = str(config.mqtt).replace("mosquitto:1883", f"{HOST}:{running.port}")
        async with (
            running.client("viewer", SECRETS["MQTT_VIEWER_PASSWORD"]) as viewer,
            running_server(mqtt=url, **settings) as server,
        ):
            await viewer.subscribe("captions/#", qos=1)
            async for message in viewer.messages:
                assert (message.topic.value, message.payload) == (
                    "captions/v1/audiokv/status",
                    b"online",
                )
                break
            assert server.health()["status"] == "ok"
