"""Where settings come from: flags, environment, a TOML file and defaults."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from audiokv.server.config import ServerConfig
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT_PREFIX = "AUDIOKV_"
# Settings whose values are never shown.
SECRETS = frozenset(
    {
        "token",
        "mqtt_password",
        "twilio_auth_token",
        "plivo_auth_token",
        "audiohook_api_key",
        "audiohook_client_secret",
    }
)
# Variables of other parts of the project, which are not settings of the server.
OTHER_VARIABLES = frozenset(
    {"AUDIOKV_ASTERISK", "AUDIOKV_CACHE", "AUDIOKV_FUZZ_EXAMPLES", "AUDIOKV_SPEECH"}
)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """Settings and where each came from.

    Attributes:
        config: The settings.
        origins: For each setting that is not a default: ``flag``, the variable, or the file.
    """

    config: ServerConfig
    origins: Mapping[str, str]

    def lines(self) -> list[str]:
        """Return the settings for printing, secrets masked."""
        return [
            f"{setting.name} = {_printed(setting.name, getattr(self.config, setting.name))}"
            f" ({self.origins.get(setting.name, 'default')})"
            for setting in fields(self.config)
        ]


def _printed(name: str, value: object) -> str:
    if name in SECRETS:
        return "none" if value is None else "********"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)


def load_config(
    flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None = None
) -> LoadedConfig:
    """Return the settings: flags win over the environment, that over the file, that over defaults.

    Args:
        flags: Values by name; None means not given.
        environment: All variables of the process.
        file: TOML file, or None.

    Raises:
        ConfigError: A key is unknown, or a value has the wrong type or is out of range.
    """
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    layers = [
        (file and str(file), {} if file is None else _read_file(file)),
        ("environment", _read_environment(environment)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ]
    hints = get_type_hints(ServerConfig)
    for origin, layer in layers:
        for name, value in layer.items():
            if name not in hints:
                raise ConfigError(
                    "unknown_setting",
                    f"There is no setting {name!r} ({origin}).",
                    f"The settings are: {', '.join(hints)}.",
                )
            values[name] = convert(name, value, hints[name])
            origins[name] = str(origin)
    return LoadedConfig(ServerConfig(**values), origins)  # type: ignore[arg-type]  # checked above


def _read_file(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            "bad_config_file",
            f"The settings file {file} cannot be read: {error}.",
            "Name a readable TOML file.",
        ) from error


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    return {
        variable.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for variable, value in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in OTHER_VARIABLES
    }


def convert(name: str, value: object, hint: Any) -> object:  # noqa: ANN401  a type or a union
    """Return a value from a flag, a variable or a TOML file as the type of its setting.

    Raises:
        ConfigError: It cannot be one.
    """
    wanted = next((kind for kind in get_args(hint) if kind is not type(None)), hint)
    if get_origin(hint) is tuple:
        wanted = tuple
    converter = _CONVERTERS[wanted]
    try:
        return converter(value)
    except (KeyError, RuntimeError, TypeError, ValueError):  # RuntimeError: ~nobody
        shown = "the value given" if name in SECRETS else repr(value)
        raise ConfigError(
            "bad_value",
            f"{name} cannot be {shown}.",
            f"Set it to {_WANTED[wanted]}.",
        ) from None


def _to_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _to_whole(value: object) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value


def _to_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _to_truth(value: object) -> bool:
    if isinstance(value, str):
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
            value.lower()
        ]
    if not isinstance(value, bool):
        raise TypeError
    return value


def _to_texts(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise TypeError
    return tuple(stripped for item in items if (stripped := _to_text(item).strip()))


def _to_path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_to_text(value)).expanduser()


_CONVERTERS = {
    str: _to_text,
    int: _to_whole,
    float: _to_number,
    bool: _to_truth,
    tuple: _to_texts,
    Path: _to_path,
}
_WANTED = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "texts, separated by commas",
    Path: "a file name",
}
