from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.server.config import ServerConfig
from audiokv.server.config_loading import OTHER_VARIABLES, load_config
from audiokv.streaming.errors import ConfigError


def code_of(flags: dict[str, object], environment: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(flags, environment, file)
    assert caught.value.message
    assert caught.value.remedy
    return caught.value.code


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "audiokv.toml"
    path.write_text('port = 1\nhost = "127.0.0.2"\nidle_timeout_s = 30\n', encoding="utf-8")
    return path


def test_the_defaults_are_safe() -> None:
    config = load_config({}, {}).config
    assert config == ServerConfig()
    assert (config.host, config.port, config.is_loopback) == ("127.0.0.1", 8765, True)


def test_a_flag_wins_over_environment_over_file_over_default(file: Path) -> None:
    environment = {"AUDIOKV_PORT": "2", "AUDIOKV_HOST": "127.0.0.3", "PATH": "/bin"}
    loaded = load_config({"port": "3", "host": None}, environment, file)
    config = loaded.config
    assert (config.port, config.host, config.idle_timeout_s) == (3, "127.0.0.3", 30.0)
    assert config.max_streams == ServerConfig().max_streams
    assert loaded.origins == {
        "port": "flag",
        "host": "environment",
        "idle_timeout_s": str(file),
    }


def test_every_kind_of_value_comes_from_every_place(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'allowed_origins = ["https://a.example", " https://b.example "]\n'
        'allow_anonymous = true\ntls_cert = "c.pem"\ntls_key = "k.pem"\nport = 80\n',
        encoding="utf-8",
    )
    environment = {
        "AUDIOKV_ALLOWED_ORIGINS": "https://a.example, https://b.example,",
        "AUDIOKV_ALLOW_ANONYMOUS": "Yes",
        "AUDIOKV_TLS_CERT": "c.pem",
        "AUDIOKV_TLS_KEY": "k.pem",
        "AUDIOKV_PORT": "80",
    }
    flags = {
        "allowed_origins": "https://a.example,https://b.example",
        "allow_anonymous": True,
        "tls_cert": Path("c.pem"),
        "tls_key": "k.pem",
        "port": "80",
    }
    configs = [
        load_config({}, {}, file).config,
        load_config({}, environment).config,
        load_config(flags, {}).config,
    ]
    assert configs[0] == configs[1] == configs[2]
    assert configs[0].allowed_origins == ("https://a.example", "https://b.example")


@pytest.mark.parametrize("variable", sorted(OTHER_VARIABLES))
def test_variables_of_other_parts_are_left_alone(variable: str) -> None:
    assert load_config({}, {variable: "x"}).config == ServerConfig()


def test_unknown_keys_are_errors_wherever_they_are(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("ports = 1\n", encoding="utf-8")
    assert code_of({}, {}, file) == "unknown_setting"
    assert code_of({}, {"AUDIOKV_PORTS": "1"}) == "unknown_setting"
    assert code_of({"ports": 1}, {}) == "unknown_setting"
    file.write_text("[server]\nport = 1\n", encoding="utf-8")
    assert code_of({}, {}, file) == "unknown_setting"


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.toml") as caught:
        load_config({}, {}, file)
    assert caught.value.code == "bad_config_file"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "http"),
        ("port", "-1"),
        ("port", "65536"),
        ("port", True),
        ("port", 1.5),
        ("port", [1]),
        ("idle_timeout_s", "soon"),
        ("idle_timeout_s", "nan"),
        ("idle_timeout_s", "0"),
        ("idle_timeout_s", True),
        ("allow_anonymous", "perhaps"),
        ("allow_anonymous", 1),
        ("allowed_origins", 1),
        ("allowed_origins", [1]),
        ("tls_cert", 1),
        ("tls_cert", "~no-such-user/cert.pem"),
        ("host", 1),
        ("log_level", "loud"),
        ("max_streams", "0"),
    ],
)
def test_impossible_values_are_errors(name: str, value: object) -> None:
    assert code_of({name: value}, {}) == "bad_value"


def test_the_settings_are_printed_with_secrets_masked() -> None:
    loaded = load_config(
        {"token": "correct-horse"}, {"AUDIOKV_ALLOWED_ORIGINS": "https://a,https://b"}
    )
    lines = loaded.lines()
    assert len(lines) == len(dataclasses.fields(ServerConfig))
    assert "token = ******** (flag)" in lines
    assert "allowed_origins = https://a, https://b (environment)" in lines
    assert "tls_cert = none (default)" in lines
    assert not any("correct-horse" in line for line in lines)
    assert "token = none (default)" in load_config({}, {}).lines()


def test_errors_do_not_quote_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"token": ["correct-horse"]}, {})
    assert "correct-horse" not in str(caught.value)


@settings(deadline=None)  # machines differ
@given(
    st.dictionaries(
        st.sampled_from([field.name for field in dataclasses.fields(ServerConfig)]),
        st.text() | st.integers() | st.floats() | st.booleans() | st.lists(st.text(), max_size=2),
    )
)
def test_any_value_gives_a_configuration_or_a_config_error(flags: dict[str, Any]) -> None:
    try:
        config = load_config(flags, {}).config
    except ConfigError:
        return
    for field in dataclasses.fields(ServerConfig):
        if field.name not in flags:
            assert getattr(config, field.name) == field.default
