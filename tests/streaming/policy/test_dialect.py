from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.captions import Word
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.dialect import (
    DialectPrior,
    LabelledFrames,
    build_prior,
    load_prior,
    word_importance,
)

if TYPE_CHECKING:
    from pathlib import Path

LOW, HIGH = (np.concatenate([np.full(10, a), np.full(10, b)]) for a, b in ((-20, -60), (-60, -20)))


def shaped(n_low: int, n_high: int, seed: int = 0) -> np.ndarray:
    bands = np.concatenate([np.tile(LOW, (n_low, 1)), np.tile(HIGH, (n_high, 1))])
    return (bands + np.random.default_rng(seed).normal(0, 2, bands.shape)).astype(np.float32)


def trained(n_templates: int = 4) -> DialectPrior:
    importance = np.repeat([0.9, 0.3], 50)
    return build_prior("scots", [LabelledFrames(shaped(50, 50), importance)], n_templates)


def test_shapes_that_matter_more_get_larger_factors_at_any_level() -> None:
    factors = trained().factors_for(np.stack([LOW, HIGH, LOW - 15, HIGH + 15]).astype(np.float32))
    assert factors == pytest.approx([1.5, 0.5, 1.5, 0.5], abs=0.1)


def test_factors_are_bounded() -> None:
    frames = LabelledFrames(shaped(5, 95), np.repeat([1.0, 0.0], [5, 95]))
    factors = build_prior("x", [frames], 2).factors
    assert sorted(factors.tolist()) == [0.5, 2.0]


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 99))
def test_any_material_gives_a_prior_and_the_same_one_again(
    n_frames: int, n_templates: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    bands = np.round(rng.normal(-40, 15, (n_frames, 20))).astype(np.float32)
    recording = LabelledFrames(bands, rng.random(n_frames) + 0.01)
    prior = build_prior("x", [recording], n_templates)
    assert 1 <= len(prior.factors) <= n_templates
    again = build_prior("x", [recording], n_templates)
    assert np.array_equal(prior.templates, again.templates)
    factors = prior.factors_for(bands)
    assert ((factors >= 0.5) & (factors <= 2.0)).all()


def test_frames_of_one_shape_need_one_template() -> None:
    recording = LabelledFrames(np.tile(LOW, (30, 1)).astype(np.float32), np.ones(30))
    assert build_prior("x", [recording], 4).factors.tolist() == [1.0]


def test_the_number_of_templates_counts() -> None:
    assert len(trained(1).factors) == 1
    assert len(trained(2).factors) == 2


def test_very_long_material_is_thinned() -> None:
    frames = LabelledFrames(
        np.tile(shaped(50, 50), (500, 1)), np.tile(np.repeat([1, 0.5], 50), 500)
    )
    assert build_prior("x", [frames], 2).factors == pytest.approx([4 / 3, 2 / 3], abs=0.05)


def test_silence_has_no_shape_and_no_trouble() -> None:
    silence = np.full((3, 20), -80.0, np.float32)
    assert np.isfinite(trained().factors_for(silence)).all()
    assert len(trained().factors_for(silence[:0])) == 0


@pytest.mark.parametrize(
    "recordings", [[], [LabelledFrames(shaped(2, 0), np.zeros(2))]], ids=["none", "no speech"]
)
def test_material_without_speech_is_refused(recordings: list[LabelledFrames]) -> None:
    with pytest.raises(ConfigError, match="'welsh'") as caught:
        build_prior("welsh", recordings)
    assert caught.value.code == "empty_prior"


def test_words_cover_their_frames() -> None:
    words = [Word("a", 10, 30, 1.0), Word("b", 45, 55, 1.0), Word("c", 90, 400, 1.0)]
    assert word_importance(words, 10).tolist() == [0, 1, 1, 0, 1, 1, 0, 0, 0, 1]


def test_a_saved_prior_is_loaded_by_name(tmp_path: Path) -> None:
    prior = trained()
    prior.save(tmp_path / "scots.json")
    loaded = load_prior("scots", tmp_path)
    assert loaded.name == "scots"
    assert loaded.templates == pytest.approx(prior.templates, abs=1e-5)
    assert loaded.factors == pytest.approx(prior.factors, abs=1e-5)


def test_an_unknown_prior_is_named_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'welsh'.*Build one first"):
        load_prior("welsh", tmp_path)
    trained().save(tmp_path / "scots.json")
    with pytest.raises(ConfigError, match=r"'\.\./scots'.*Use one of scots") as caught:
        load_prior("../scots", tmp_path)
    assert caught.value.code == "unknown_dialect"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"templates": [[0.0] * 19]},
        {"templates": "none"},
        {"templates": [[float("nan")] * 20]},
        {"factors": []},
        {"factors": [9.0]},
        {"factors": None},
    ],
)
def test_files_that_are_no_prior_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    good = {"version": 1, "name": "x", "templates": [[0.0] * 20], "factors": [1.0]}
    (tmp_path / "x.json").write_text(json.dumps(good | change))
    with pytest.raises(ConfigError, match="prior 'x'") as caught:
        load_prior("x", tmp_path)
    assert caught.value.code == "bad_dialect"


@pytest.mark.parametrize("content", ["", "{}", "[]", "\xff"])
def test_files_of_anything_else_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match="Build it again"):
        load_prior("x", tmp_path)
