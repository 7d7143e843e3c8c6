from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
from aiomqtt import MqttCodeError, MqttError
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from audiokv.server.config import ServerConfig
from audiokv.server.config_loading import load_config
from audiokv.server.mqtt.broker import Broker, broker_of, explain
from audiokv.streaming.errors import ConfigError

BROKER = Broker("host", 1883)


def of(**settings: Any) -> Broker | None:
    return broker_of(ServerConfig(**settings))


def test_without_a_url_there_is_no_broker() -> None:
    assert of() is None
    assert of(mqtt_user="me") is None


@pytest.mark.parametrize(
    ("url", "host", "port", "is_encrypted"),
    [
        ("mqtt://broker", "broker", 1883, False),
        ("mqtts://broker/", "broker", 8883, True),
        ("mqtt://10.0.0.7:1884", "10.0.0.7", 1884, False),
        ("mqtts://[::1]:9", "::1", 9, True),
    ],
)
def test_the_url_says_where_the_broker_is(
    url: str, host: str, port: int, *, is_encrypted: bool
) -> None:
    assert of(mqtt=url) == Broker(host, port, is_encrypted)


def test_login_and_authorities_are_taken_over() -> None:
    ca = Path("ca.pem")
    broker = of(mqtt="mqtts://b", mqtt_user="me", mqtt_password="pw", mqtt_ca=ca)  # noqa: S106  of a test
    assert broker == Broker("b", 8883, is_encrypted=True, user="me", password="pw", ca_file=ca)  # noqa: S106  of a test
    assert "pw" not in repr(broker)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"mqtt": ""}, "bad_mqtt_url"),
        ({"mqtt": "broker:1883"}, "bad_mqtt_url"),
        ({"mqtt": "http://broker"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://b:99999"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://b:x"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://b/path"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://b?x=1"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://[::1"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://b", "mqtt_password": "pw"}, "incomplete_mqtt_login"),
        ({"mqtt": "mqtt://b", "mqtt_ca": Path("ca.pem")}, "mqtt_ca_without_tls"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(**settings)
    assert caught.value.code == code
    assert caught.value.remedy


def test_a_login_in_the_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError) as caught:
        of(mqtt="mqtt://me:hunter2@broker")
    assert caught.value.code == "login_in_mqtt_url"
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_broker_or_a_config_error(url: str) -> None:
    try:
        broker = of(mqtt=url)
    except ConfigError:
        return
    assert broker is not None
    assert broker.host
    assert 0 < broker.port < 65_536


def test_tls_trusts_the_file_and_only_where_the_url_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    context = Broker("b", 8883, is_encrypted=True, ca_file=file).tls_context()
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert BROKER.tls_context() is None


@pytest.mark.parametrize("body", [None, "no certificate"])
def test_authorities_that_cannot_be_read_are_told(tmp_path: Path, body: str | None) -> None:
    file = tmp_path / "ca.pem"
    if body is not None:
        file.write_text(body)
    with pytest.raises(ConfigError, match=r"ca\.pem") as caught:
        Broker("b", 8883, is_encrypted=True, ca_file=file).tls_context()
    assert caught.value.code == "bad_mqtt_ca"


def reason(name: str, packet: int = PacketTypes.CONNACK) -> ReasonCode:
    return ReasonCode(packet, name)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MqttCodeError(reason("Bad user name or password")), "mqtt_login_refused"),
        (MqttCodeError(reason("Not authorized")), "mqtt_login_refused"),
        (MqttCodeError(reason("Unsupported protocol version")), "mqtt_too_old"),
        (MqttCodeError(reason("Session taken over", PacketTypes.DISCONNECT)), "mqtt_taken_over"),
        (MqttCodeError(reason("Unspecified error", PacketTypes.DISCONNECT)), "mqtt_closed"),
        (MqttCodeError(4), "mqtt_unreachable"),
        (MqttError("[Errno 111] Connection refused"), "mqtt_unreachable"),
    ],
)
def test_failures_are_explained(error: MqttError, code: str) -> None:
    told = explain(error, BROKER, "audiokv-a")
    assert told.code == code
    assert "mqtt://host:1883" in told.message
    assert told.remedy


def test_the_cause_of_a_failure_counts() -> None:
    error = MqttError("Disconnected during message iteration")
    error.__cause__ = MqttCodeError(reason("Session taken over", PacketTypes.DISCONNECT))
    assert explain(error, BROKER, "audiokv-a").code == "mqtt_taken_over"


@pytest.mark.parametrize(
    ("broker", "name"),
    [(BROKER, "mqtt://host:1883"), (Broker("::1", 9, is_encrypted=True), "mqtts://[::1]:9")],
)
def test_a_broker_s_name_is_its_url(broker: Broker, name: str) -> None:
    assert broker.name == name


def test_the_password_is_neither_printed_nor_quoted() -> None:
    loaded = load_config({}, {"AUDIOKV_MQTT_PASSWORD": "hunter2", "AUDIOKV_MQTT_USER": "me"})
    assert loaded.config.mqtt_password == "hunter2"  # noqa: S105  of a test
    lines = loaded.lines()
    assert not [line for line in lines if "hunter2" in line]
    assert "mqtt_user = me (environment)" in lines
    with pytest.raises(ConfigError) as caught:
        load_config({"mqtt_password": 4711}, {})
    assert "4711" not in str(caught.value)
