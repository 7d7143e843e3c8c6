"""An encrypted connection to a real mosquitto."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trustme

from audiokv.server.clock import LoopClock
from audiokv.server.config import ServerConfig
from audiokv.server.mqtt.bridge import MqttBridge
from audiokv.server.mqtt.broker import broker_of
from tests.server.doubles import until
from tests.server.mqtt.mosquitto import running_broker
from tests.server.running import running_server

if TYPE_CHECKING:
    from pathlib import Path


def encrypted(folder: Path, authority: trustme.CA, name: str) -> str:
    """Return the broker's configuration with a certificate for a name."""
    certificate = authority.issue_cert(name)
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "broker.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    lines = [f"{kind}file {folder / 'broker.pem'}" for kind in ("cert", "key")]
    return "\n".join(["allow_anonymous true", *lines])


def config(port: int, authorities: Path | None) -> ServerConfig:
    return ServerConfig(port=0, mqtt=f"mqtts://localhost:{port}", mqtt_ca=authorities)


async def test_the_server_publishes_over_tls(tmp_path: Path) -> None:
    lines = encrypted(tmp_path, trustme.CA(), "localhost")
    async with running_broker(tmp_path, lines) as broker, running_server() as server:
        settings = config(broker.port, tmp_path / "ca.pem")
        found = broker_of(settings)
        assert found is not None
        bridge = MqttBridge(settings, found, registry=server.registry, model="m", clock=LoopClock())
        bridge.start()
        await bridge.link.connected.wait()
        await bridge.stop()


@pytest.mark.parametrize(
    ("name", "is_known"), [("localhost", False), ("somewhere.else.test", True)]
)
async def test_a_broker_that_cannot_prove_who_it_is_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, *, is_known: bool
) -> None:
    lines = encrypted(tmp_path, trustme.CA(), name)
    async with running_broker(tmp_path, lines) as broker:
        known = tmp_path / "ca.pem" if is_known else None
        url = config(broker.port, known).mqtt
        async with running_server(mqtt=url, mqtt_ca=known):
            await until(lambda: "certificate verify failed" in caplog.text)
    assert "connected" not in caplog.text
