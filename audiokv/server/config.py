"""The server's settings: one frozen value, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from ipaddress import ip_address, ip_network
from pathlib import Path  # noqa: TC003  get_type_hints reads the fields' types
from typing import TYPE_CHECKING, Any

from audiokv.models.base import WeightOptions
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.registry import POLICY_NAMES
from audiokv.streaming.session_options import SessionOptions

if TYPE_CHECKING:
    from dataclasses import Field

    from audiokv.streaming.policy.dialect import DialectPrior

LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_PORT = 65_535
MIN_TOKEN_CHARS = 8
_TIMING = SessionOptions()


def _about(
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> dict[str, object]:
    return {"help": text, "low": low, "high": high, "choices": choices}


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything that can be set; units in the names. Each field's help text is its documentation.

    Raises:
        ConfigError: A value is out of range, or values contradict each other.
    """

    host: str = field(default="127.0.0.1", metadata=_about("address to listen on"))
    port: int = field(
        default=8765, metadata=_about("port to listen on; 0 takes a free one", low=0, high=MAX_PORT)
    )
    vosk_port: int | None = field(
        default=None,
        metadata=_about("port for clients of vosk-server (usual: 2700)", low=0, high=MAX_PORT),
    )
    whisperlive_port: int | None = field(
        default=None,
        metadata=_about("port for clients of WhisperLive (usual: 9090)", low=0, high=MAX_PORT),
    )
    wyoming_port: int | None = field(
        default=None,
        metadata=_about("port for Home Assistant, Wyoming (usual: 10300)", low=0, high=MAX_PORT),
    )
    audiosocket_port: int | None = field(
        default=None,
        metadata=_about("port for Asterisk's AudioSocket (usual: 9092)", low=0, high=MAX_PORT),
    )
    sip_port: int | None = field(
        default=None,
        metadata=_about("UDP port for calls by SIP (usual: 5060)", low=0, high=MAX_PORT),
    )
    sip_allow: tuple[str, ...] = field(
        default=("127.0.0.1", "::1"),
        metadata=_about("addresses and networks whose SIP calls are answered; comma-separated"),
    )
    public_url: str | None = field(
        default=None,
        metadata=_about("scheme and host under which providers of calls reach the server"),
    )
    twilio_auth_token: str | None = field(
        default=None, metadata=_about("secret that signs the requests of Twilio or SignalWire")
    )
    plivo_auth_token: str | None = field(
        default=None, metadata=_about("secret that signs the requests of Plivo")
    )
    audiohook_api_key: str | None = field(
        default=None, metadata=_about("key that Genesys AudioHook presents")
    )
    audiohook_client_secret: str | None = field(
        default=None, metadata=_about("secret, in base64, that signs the requests of AudioHook")
    )
    model: str = field(default="whisper-base", metadata=_about("model name or folder"))
    adapter: str | None = field(
        default=None,
        metadata=_about("LoRA adapter for the model: a folder or hub name; Gemma-3n only"),
    )
    weights: str = field(
        default="full",
        metadata=_about(
            "how a Gemma-3n's text model is held in memory", choices=("full", "int8", "int4")
        ),
    )
    dtype: str = field(
        default="auto",
        metadata=_about(
            "type of a Gemma-3n's numbers; auto takes what suits the device",
            choices=("auto", "float32", "bfloat16", "float16"),
        ),
    )
    audio_budget_slots: int | None = field(
        default=None,
        metadata=_about(
            "audio slots that the recogniser may hold for a stream; without it, its whole window",
            low=10,
            high=100_000,
        ),
    )
    policy: str = field(
        default="audiokv",
        metadata=_about("what decides which slots stay within the budget", choices=POLICY_NAMES),
    )
    dialect: str | None = field(
        default=None,
        metadata=_about("prior of a way of speaking: a name or file of audiokv dialect build"),
    )
    speakers: bool = field(
        default=False, metadata=_about("tell the speakers of a stream apart by their voices")
    )
    token: str | None = field(default=None, metadata=_about("secret that clients must present"))
    allow_anonymous: bool = field(
        default=False, metadata=_about("listen beyond this machine without a token")
    )
    allowed_origins: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "web origins allowed besides the server's own page, or * for all; comma-separated"
        ),
    )
    tls_cert: Path | None = field(
        default=None, metadata=_about("PEM file with the TLS certificate chain")
    )
    tls_key: Path | None = field(default=None, metadata=_about("PEM file with the TLS private key"))
    mqtt: str | None = field(
        default=None,
        metadata=_about("broker to publish captions to: mqtt://HOST:PORT, or mqtts:// for TLS"),
    )
    mqtt_prefix: str = field(
        default="captions/v1", metadata=_about("first levels of every MQTT topic")
    )
    mqtt_instance: str = field(
        default="audiokv",
        metadata=_about("this server's level in MQTT topics; one for each server"),
    )
    mqtt_user: str | None = field(
        default=None, metadata=_about("name to log in with at the broker")
    )
    mqtt_password: str | None = field(default=None, metadata=_about("password for the broker"))
    mqtt_ca: Path | None = field(
        default=None,
        metadata=_about(
            "PEM file with the authorities trusted for mqtts; without it, the system's"
        ),
    )
    mqtt_audio: bool = field(
        default=False, metadata=_about("take audio of devices from the broker, without the token")
    )
    mqtt_hermes: bool = field(
        default=False,
        metadata=_about("speak Rhasspy's Hermes topics at the broker, without the token"),
    )
    mqtt_home_assistant: bool = field(
        default=False, metadata=_about("let Home Assistant find the captions at the broker")
    )
    log_level: str = field(
        default="info", metadata=_about("least important log line shown", choices=LOG_LEVELS)
    )
    max_streams: int = field(
        default=8, metadata=_about("streams recognised at a time", low=1, high=10_000)
    )
    max_viewers: int = field(
        default=200, metadata=_about("viewers of one stream", low=0, high=100_000)
    )
    max_connections_per_ip: int = field(
        default=64, metadata=_about("connections of one address", low=1, high=100_000)
    )
    max_message_bytes: int = field(
        default=65_536, metadata=_about("largest message", low=1_024, high=2**24)
    )
    max_unacknowledged_ms: int = field(
        default=10_000,
        metadata=_about(
            "audio a sender may be ahead of the acknowledgement", low=1_000, high=600_000
        ),
    )
    max_backlog_ms: int = field(
        default=30_000,
        metadata=_about(
            "unrecognised audio of a stream before reading pauses", low=1_000, high=600_000
        ),
    )
    max_live_lag_ms: int = field(
        default=8_000,
        metadata=_about(
            "lag of any live stream at which new ones are refused", low=500, high=600_000
        ),
    )
    max_batch: int = field(
        default=1, metadata=_about("streams recognised in one call", low=1, high=1_024)
    )
    step_ms: int = field(
        default=_TIMING.step_ms,
        metadata=_about("audio between two recognition steps", low=20, high=10_000),
    )
    pause_ms: int = field(
        default=_TIMING.pause_ms,
        metadata=_about("silence that ends a caption", low=100, high=10_000),
    )
    max_lag_ms: int = field(
        default=_TIMING.max_lag_ms,
        metadata=_about("backlog from which steps are merged", low=500, high=600_000),
    )
    handshake_timeout_s: float = field(
        default=10.0, metadata=_about("time to open a connection", low=0.01, high=600)
    )
    start_timeout_s: float = field(
        default=10.0, metadata=_about("time until the first message", low=0.01, high=600)
    )
    idle_timeout_s: float = field(
        default=60.0, metadata=_about("silence of a source until closing", low=1, high=86_400)
    )
    resume_window_s: float = field(
        default=60.0,
        metadata=_about("time a stream outlives its lost connection", low=0, high=86_400),
    )
    shutdown_timeout_s: float = field(
        default=5.0, metadata=_about("time to close everything", low=0.1, high=600)
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for setting in fields(self):
            _check_range(setting, getattr(self, setting.name))
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError(
                "incomplete_tls",
                "TLS needs both a certificate and a key.",
                "Set tls_cert and tls_key, or neither.",
            )
        if self.token is not None and not _is_good_token(self.token):
            raise ConfigError(
                "bad_token",
                f"The token needs {MIN_TOKEN_CHARS} or more of the characters A-Z a-z 0-9 - . _ ~.",
                "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'.",
            )
        if self.dialect is not None and (
            self.audio_budget_slots is None or self.policy != "audiokv"
        ):
            raise ConfigError(
                "unused_dialect",
                "A dialect weighs slots of a budget, under the policy audiokv only.",
                "Set audio_budget_slots, and leave policy alone; or leave dialect out.",
            )
        if self.policy == "full" and self.audio_budget_slots is not None:
            raise ConfigError(
                "policy_without_bound",
                "The policy full holds everything, so a budget of slots cannot be kept.",
                "Leave audio_budget_slots out, or choose another policy.",
            )
        if not self.is_loopback and self.token is None and not self.allow_anonymous:
            raise ConfigError(
                "open_to_all",
                f"Listening on {self.host} lets everyone in the network in.",
                "Set a token, or say --allow-anonymous.",
            )
        for network in self.sip_allow:
            _check_network(network)
        for name in ("wyoming_port", "audiosocket_port"):
            if getattr(self, name) is not None and not (self.is_loopback or self.allow_anonymous):
                raise ConfigError(
                    "open_to_all",
                    f"{name} knows no token: on {self.host} it lets everyone in the network in.",
                    f"Leave {name} out, or say --allow-anonymous; the token still guards the"
                    " other ports.",
                )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def cache_options(self, prior: DialectPrior | None = None) -> CacheOptions:
        """Return the bound of a stream's audio cache, with the prior that ``dialect`` names."""
        return CacheOptions(self.audio_budget_slots, self.policy, prior)

    def weight_options(self) -> WeightOptions:
        """Return how to load the model's weights."""
        dtype = None if self.dtype == "auto" else self.dtype
        return WeightOptions(self.adapter, self.weights, dtype)

    def session_options(self) -> SessionOptions:
        """Return the timing of sessions."""
        return SessionOptions(
            step_ms=self.step_ms, pause_ms=self.pause_ms, max_lag_ms=self.max_lag_ms
        )


def _check_network(network: str) -> None:
    try:
        ip_network(network)
    except ValueError:
        raise ConfigError(
            "bad_value",
            f"sip_allow names {network!r}, which is no network.",
            "Write addresses like 192.0.2.7 or networks like 10.0.0.0/8.",
        ) from None


def _is_good_token(token: str) -> bool:
    # Only these survive both an HTTP header and the name of a subprotocol.
    return len(token) >= MIN_TOKEN_CHARS and all(
        char.isascii() and (char.isalnum() or char in "-._~") for char in token
    )


def _check_range(setting: Field[Any], value: object) -> None:
    low, high = setting.metadata["low"], setting.metadata["high"]
    choices = setting.metadata["choices"]
    if low is not None and isinstance(value, int | float) and not low <= value <= high:
        raise ConfigError(
            "bad_value",
            f"{setting.name} is {value}.",
            f"Set it to a value from {low} to {high}.",
        )
    if choices and value not in choices:
        raise ConfigError(
            "bad_value",
            f"{setting.name} is {value!r}.",
            f"Set it to one of {', '.join(choices)}.",
        )
