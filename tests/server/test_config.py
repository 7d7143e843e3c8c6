from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audiokv.models.base import WeightOptions
from audiokv.server.config import ServerConfig
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.dialect import DialectPrior


def code_of(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(**settings)
    assert caught.value.remedy
    return caught.value.code


@pytest.mark.parametrize(
    "token", ["", "short", "with space in it", "ümlaute-und-mehr", "a,b,c,d,e"]
)
def test_a_token_must_survive_headers(token: str) -> None:
    assert code_of(token=token) == "bad_token"


@pytest.mark.parametrize("half", ["tls_cert", "tls_key"])
def test_tls_needs_both_files(half: str) -> None:
    assert code_of(**{half: Path("x.pem")}) == "incomplete_tls"


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "", "192.0.2.1", "127.evil.example"],  # noqa: S104  not bound
)
def test_listening_beyond_this_machine_needs_a_token_or_a_word(host: str) -> None:
    assert code_of(host=host) == "open_to_all"
    assert not ServerConfig(host=host, allow_anonymous=True).is_loopback
    assert not ServerConfig(host=host, token="correct-horse").is_loopback  # noqa: S106  a test's


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_this_machine_needs_neither(host: str) -> None:
    assert ServerConfig(host=host).is_loopback


@pytest.mark.parametrize(
    "field", [f for f in dataclasses.fields(ServerConfig) if f.metadata["low"] is not None]
)
def test_every_number_has_its_range(field: dataclasses.Field[Any]) -> None:
    low, high = field.metadata["low"], field.metadata["high"]
    for value in (low, high):
        assert getattr(ServerConfig(**{field.name: value}), field.name) == value
    for value in (low - 1, high + 1):
        assert code_of(**{field.name: value}) == "bad_value"


def test_a_choice_is_one_of_a_few() -> None:
    assert code_of(log_level="loud") == "bad_value"
    assert code_of(policy="coin") == "bad_value"


def test_every_setting_is_explained() -> None:
    assert all(field.metadata["help"] for field in dataclasses.fields(ServerConfig))


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServerConfig().port = 1  # type: ignore[misc]  # that is the test


def test_the_bound_of_the_audio_cache_is_passed_on() -> None:
    assert ServerConfig().cache_options().budget_slots is None
    options = ServerConfig(audio_budget_slots=120, policy="uniform").cache_options()
    assert (options.budget_slots, options.policy) == (120, "uniform")


def test_the_way_to_load_the_weights_is_passed_on() -> None:
    assert ServerConfig().weight_options() == WeightOptions()
    config = ServerConfig(adapter="some/adapter", weights="int8", dtype="bfloat16")
    assert config.weight_options() == WeightOptions("some/adapter", "int8", "bfloat16")
    assert code_of(weights="int3") == "bad_value"
    assert code_of(dtype="float8") == "bad_value"


def test_a_dialect_needs_a_budget_to_weigh() -> None:
    assert code_of(dialect="scots") == "unused_dialect"
    assert code_of(dialect="scots", audio_budget_slots=120, policy="fifo") == "unused_dialect"


def test_a_budget_needs_a_policy_that_evicts() -> None:
    assert code_of(audio_budget_slots=120, policy="full") == "policy_without_bound"
    ServerConfig(policy="full")
    config = ServerConfig(dialect="scots", audio_budget_slots=120)
    prior = DialectPrior("scots", np.eye(1, 20), np.ones(1))
    assert config.cache_options(prior).prior is prior
    assert config.cache_options().prior is None


def test_session_timing_is_passed_on() -> None:
    options = ServerConfig(step_ms=160, pause_ms=700, max_lag_ms=9_000).session_options()
    assert (options.step_ms, options.pause_ms, options.max_lag_ms) == (160, 700, 9_000)


@pytest.mark.parametrize("setting", ["wyoming_port", "audiosocket_port"])
def test_a_port_without_a_token_needs_a_word_beyond_this_machine(setting: str) -> None:
    port: dict[str, Any] = {setting: 0}
    open_host: dict[str, Any] = {"host": "0.0.0.0", "token": "correct-horse"}  # noqa: S104  not bound
    assert code_of(**open_host, **port) == "open_to_all"
    assert ServerConfig(**open_host, **port, allow_anonymous=True).token
    assert getattr(ServerConfig(**port), setting) == 0


def test_a_websocket_port_of_its_own_is_guarded_by_the_token() -> None:
    config = ServerConfig(host="0.0.0.0", token="correct-horse", vosk_port=0)  # noqa: S104, S106  not bound
    assert config.vosk_port == 0
