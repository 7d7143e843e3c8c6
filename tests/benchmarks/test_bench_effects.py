from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.streaming.policy.assembly import open_driver
from audiokv.streaming.policy.marker import Talker
from benchmarks.effects import (
    WITH,
    WITHOUT,
    drive,
    languages_held,
    ledger_effects,
    marked,
    trials,
)
from benchmarks.recordings import Recording
from benchmarks.retention_policies import LIVE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    chance = np.random.default_rng(0)
    found: list[Recording] = []
    for name, language in (("a/0", "en"), ("b/1", "en"), ("a/2", "de"), ("a/3", "es")):
        path = tmp_path / f"{name.replace('/', '-')}.wav"
        tone = np.sin(np.arange(128_000) / (5 + len(found))) * (np.arange(128_000) % 4000 < 2600)
        soundfile.write(path, 0.3 * tone + chance.normal(0, 1e-3, 128_000), 16_000)
        found.append(Recording(name, path, language, "some text"))
    return found


def test_slots_are_marked_with_who_speaks_and_what_they_draw() -> None:
    audio = np.full(3200, 0.1, np.float32)
    parts = marked([(audio, Talker("ann"), 1.0), (audio, Talker("bob", "de"), 0.3)])
    assert [part.gain for part in parts] == [1.0, 0.3]
    assert [len(part.marks) for part in parts] == [10, 10]
    assert parts[1].marks[0].start_ms == 200
    assert (parts[1].marks[0].speaker, parts[1].marks[0].language) == ("bob", "de")


def test_what_draws_more_attention_scores_higher() -> None:
    audio = np.full(16_000, 0.1, np.float32)
    driver = open_driver("audiokv", 90, 20, LIVE)
    drive(driver, marked([(audio, Talker(), 1.0), (audio, Talker(), 9.0), (audio, Talker(), 1.0)]))
    ledger = driver.ledger
    assert ledger.held <= 90
    loud = (ledger.start_ms >= 1000) & (ledger.start_ms < 2000)
    assert ledger.attention.importance[loud].mean() > ledger.attention.importance[~loud].mean()


def test_a_share_keeps_the_language_that_comes_back(recordings: list[Recording]) -> None:
    assert languages_held(recordings, 0.2) > languages_held(recordings, 0.0)


def test_every_mechanism_has_a_number_without_and_with_it(recordings: list[Recording]) -> None:
    for numbers in ledger_effects(recordings).values():
        assert set(numbers) == {WITHOUT, WITH}
        assert np.isfinite([*numbers.values()]).all()


def test_live_sessions_hear_the_same_with_and_without(recordings: list[Recording]) -> None:
    found = {trial.name: trial for trial in trials(recordings)}
    assert [*found] == ["language shares", "burst reset", "stutter profile"]
    (pair,) = found["language shares"].clips
    assert pair.told_language is None
    assert len(pair.samples) == 3 * (128_000 + 4_000)
    assert max(abs(found["burst reset"].clips[0].samples)) > 0.7
    assert len(found["stutter profile"].clips[0].samples) == 128_000 + 6 * 2 * 1920
