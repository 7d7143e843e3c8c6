"""Where the broker is, who the server is to it, and what its refusals mean."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  a field's type
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiomqtt import MqttCodeError, MqttError
from paho.mqtt.reasoncodes import ReasonCode

from audiokv.streaming.errors import AudioKVError, ConfigError

if TYPE_CHECKING:
    from audiokv.server.config import ServerConfig

DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}
# Reason codes of MQTT 5.0, section 2.4.
UNSPECIFIED = 0x80
UNSUPPORTED_VERSION = 0x84
BAD_LOGIN = frozenset({0x86, 0x87})  # bad user name or password, not authorised
TAKEN_OVER = 0x8E
# Return code of MQTT 3.1.1 for "unacceptable protocol version", from brokers that know no other.
UNACCEPTABLE_VERSION = 0x01


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and the login there.

    Attributes:
        host: Its name or address.
        port: Its port.
        is_encrypted: Whether the connection uses TLS.
        user: Name to log in with, or None.
        password: Password to log in with, or None.
        ca_file: PEM file of the authorities trusted for TLS, or None for the system's.
    """

    host: str
    port: int
    is_encrypted: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None

    @property
    def name(self) -> str:
        """The broker's address, for messages."""
        scheme = "mqtts" if self.is_encrypted else "mqtt"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, or None for plain text.

        Raises:
            ConfigError: The file of authorities cannot be used.
        """
        if not self.is_encrypted:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ConfigError(
                "bad_mqtt_ca",
                f"mqtt_ca {self.ca_file} cannot be used: {error}.",
                "Name a PEM file with the certificate authorities to trust.",
            ) from error


def broker_of(config: ServerConfig) -> Broker | None:
    """Return the broker of the settings, or None when no broker is set.

    Raises:
        ConfigError: The URL is not one of a broker, or the login is incomplete.
    """
    if config.mqtt is None:
        return None
    url = config.mqtt
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _bad_url(str(error)) from error
    if parts.username is not None or parts.password is not None:
        # The text of the setting is printed at start: it must not be repeated here either.
        raise ConfigError(
            "login_in_mqtt_url",
            "The MQTT URL carries a login, which would be printed and logged.",
            "Leave it out of the URL, and set mqtt_user and mqtt_password.",
        )
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise _bad_url(f"{url!r} names no host or has another scheme")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise _bad_url(f"{url!r} has more than a host and a port")
    if config.mqtt_password is not None and config.mqtt_user is None:
        raise ConfigError(
            "incomplete_mqtt_login",
            "mqtt_password is set without mqtt_user.",
            "Set both, or neither.",
        )
    is_encrypted = parts.scheme == "mqtts"
    if config.mqtt_ca is not None and not is_encrypted:
        raise ConfigError(
            "mqtt_ca_without_tls",
            f"mqtt_ca is set, but {url!r} is not encrypted.",
            "Use mqtts://, or leave mqtt_ca out.",
        )
    return Broker(
        host=parts.hostname,
        port=port or DEFAULT_PORTS[parts.scheme],
        is_encrypted=is_encrypted,
        user=config.mqtt_user,
        password=config.mqtt_password,
        ca_file=config.mqtt_ca,
    )


def _bad_url(reason: str) -> ConfigError:
    return ConfigError(
        "bad_mqtt_url",
        f"The MQTT URL cannot be used: {reason}.",
        "Write mqtt://HOST, mqtt://HOST:PORT, or mqtts:// for TLS.",
    )


def explain(error: MqttError, broker: Broker, identifier: str) -> AudioKVError:
    """Return what the operator is told about a connection that failed.

    Args:
        error: What the client library raised.
        broker: The broker.
        identifier: The server's client identifier there.
    """
    match _reason_code(error):
        case code if code in BAD_LOGIN:
            who = "an anonymous client" if broker.user is None else f"the login of {broker.user!r}"
            return AudioKVError(
                "mqtt_login_refused",
                f"The broker {broker.name} refused {who}.",
                "Check mqtt_user, mqtt_password and the broker's access list.",
            )
        case code if code in {UNSUPPORTED_VERSION, UNACCEPTABLE_VERSION}:
            return AudioKVError(
                "mqtt_too_old",
                f"The broker {broker.name} does not speak MQTT 5.",
                "Use a broker that does, such as mosquitto 1.6 or newer.",
            )
        case code if code == TAKEN_OVER:
            return AudioKVError(
                "mqtt_taken_over",
                f"Another client connected to {broker.name} as {identifier!r}.",
                "Give each server a mqtt_instance of its own.",
            )
        case code if code == UNSPECIFIED:
            # What the client library makes of a connection that the broker just closed; an older
            # mosquitto gives no other sign of a second client of the same name.
            return AudioKVError(
                "mqtt_closed",
                f"The broker {broker.name} closed the connection of {identifier!r}.",
                "If it happens again and again, give each server a mqtt_instance of its own.",
            )
        case _:
            reason = str(error.__cause__ or error) or type(error).__name__
            return AudioKVError(
                "mqtt_unreachable",
                f"The connection to the broker {broker.name} failed: {reason}.",
                "Check that the broker runs and that the address is right.",
            )


def _reason_code(error: MqttError) -> int | None:
    carrier = error.__cause__ if isinstance(error.__cause__, MqttCodeError) else error
    code = carrier.rc if isinstance(carrier, MqttCodeError) else None
    return int(code.value) if isinstance(code, ReasonCode) else None
