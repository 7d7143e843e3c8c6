from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
import torch

from audiokv.models.build_dialect import add_arguments, labelled_frames, run
from audiokv.models.recordings import Recording, find_recordings
from audiokv.models.whisper.audio_budget import AudioBudget, open_holder
from audiokv.models.whisper.network import Dimensions
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.dialect_files import dialect_folder, find_prior
from audiokv.streaming.policy.marker import UNKNOWN_TALKER
from audiokv.streaming.policy.scoring import Scorer
from audiokv.streaming.policy.spectrum import BandSpectrum

if TYPE_CHECKING:
    from pathlib import Path

    from audiokv.models.whisper.word_alignment import Aligner
    from audiokv.streaming.policy.dialect import DialectPrior

RATE_HZ = 16_000
DIMS = Dimensions(16, 1, 1, 2, 2, 80, 64, 150, 96)


def band(low_hz: int, high_hz: int, n_ms: int, seed: int) -> np.ndarray:
    """Noise between two frequencies."""
    noise = np.fft.rfft(np.random.default_rng(seed).standard_normal(16 * n_ms))
    hz = np.fft.rfftfreq(16 * n_ms, 1 / RATE_HZ)
    noise[(hz < low_hz) | (hz > high_hz)] = 0
    return 0.1 * np.fft.irfft(noise, 16 * n_ms)


def low(n_ms: int, seed: int = 0) -> np.ndarray:
    return band(100, 900, n_ms, seed)


def high(n_ms: int, seed: int = 1) -> np.ndarray:
    return band(4_000, 7_500, n_ms, seed)


@pytest.fixture
def timed_folder(tmp_path: Path) -> Path:
    """Words of low sounds, with high ones between them that are no words."""
    folder = tmp_path / "audio"
    folder.mkdir()
    for number in range(2):
        parts = [low(400, number), high(400, number)] * 3
        soundfile.write(folder / f"{number}.wav", np.concatenate(parts), RATE_HZ)
    words = [{"word": "oo", "start_s": 0.8 * i, "end_s": 0.8 * i + 0.4} for i in range(3)]
    entries = [{"file": f"{number}.wav", "words": words} for number in range(2)]
    (folder / "manifest.jsonl").write_text("\n".join(map(json.dumps, entries)))
    return folder


def build(*words: object) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(["build", *map(str, words)]))


@pytest.fixture
def prior(
    timed_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> DialectPrior:
    data = timed_folder.parent / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    assert build("--audio", timed_folder, "--out", "oo", "--templates", 2) == 0
    assert "2 templates from 2 recordings of 5 s" in capsys.readouterr().out
    return find_prior("oo", dialect_folder({"XDG_DATA_HOME": str(data)}))


def test_a_prior_is_built_under_a_name_and_found_by_it(prior: DialectPrior) -> None:
    assert prior.name == "oo"
    assert sorted(prior.factors) == pytest.approx([0.5, 2.0], abs=0.1)


def held_after(prior: DialectPrior | None, n_slots: int) -> AudioBudget:
    """What a budget holds of low sounds followed by high ones, then of some more to let it rest."""
    holder = open_holder(CacheOptions(n_slots, "audiokv", prior), DIMS, torch.float32)
    assert isinstance(holder, AudioBudget)
    for samples in (low(1_000, 8), high(1_000, 9)):
        holder.append(samples.astype(np.float32), UNKNOWN_TALKER)
    holder.hold()
    return holder


def test_a_prior_multiplies_the_scores_of_the_sounds_it_knows(prior: DialectPrior) -> None:
    plain, weighed = (held_after(one, 200).driver.ledger for one in (None, prior))
    assert np.array_equal(plain.start_ms, weighed.start_ms)
    assert plain.prior.tolist() == [1.0] * 100
    ratio = Scorer().score(weighed) / Scorer().score(plain)
    assert ratio == pytest.approx(weighed.prior)
    assert ratio[5:45] == pytest.approx(2.0, abs=0.2)
    assert ratio[55:95] == pytest.approx(0.5, abs=0.2)


def test_a_prior_changes_what_stays(prior: DialectPrior) -> None:
    plain, weighed = (held_after(one, 40).driver.ledger for one in (None, prior))
    n_low = [int((ledger.start_ms < 1_000).sum()) for ledger in (plain, weighed)]
    assert n_low[1] > n_low[0]


def test_a_fresh_window_keeps_the_prior(prior: DialectPrior) -> None:
    budget = held_after(prior, 200)
    budget.open(5_000)
    budget.append(low(400).astype(np.float32), UNKNOWN_TALKER)
    budget.hold()
    assert budget.driver.ledger.prior[5:] == pytest.approx(2.0, abs=0.2)


def no_aligner() -> Aligner:
    raise AssertionError("times that are known need no model")


def test_frames_in_words_count(timed_folder: Path) -> None:
    (recording, _) = find_recordings(timed_folder)
    frames = labelled_frames(recording, no_aligner)
    assert frames.bands.shape == (240, 20)
    assert frames.importance.tolist() == ([1.0] * 40 + [0.0] * 40) * 3


def test_words_of_real_speech_are_found_by_the_model(
    tmp_path: Path, speech_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "librispeech/1089-134691-0001.flac"
    lines = map(json.loads, (speech_folder / "manifest.jsonl").read_text("utf-8").splitlines())
    text = next(entry["text"] for entry in lines if entry["file"] == name)
    samples, rate_hz = soundfile.read(speech_folder / name)
    hiss = 0.02 * high(2_000)
    soundfile.write(tmp_path / "a.wav", np.concatenate((samples, hiss)), rate_hz)
    (tmp_path / "a.txt").write_text(text)
    out = tmp_path / "read.json"
    assert build("--audio", tmp_path, "--out", out, "--language", "en") == 0
    assert "1 recordings of 7 s" in capsys.readouterr().out
    prior = find_prior(str(out), tmp_path / "nothing")
    whole = samples[: len(samples) // 160 * 160].astype(np.float32)
    in_speech = prior.factors_for(BandSpectrum().push(whole))
    in_hiss = prior.factors_for(BandSpectrum().push(hiss.astype(np.float32)))
    assert in_hiss.mean() < 0.8
    assert in_speech.mean() > 1.1


@pytest.mark.parametrize(
    ("files", "more", "code", "named"),
    [
        (["a.wav"], [], "no_label", r"a\.wav"),
        ([], [], "no_recordings", "audio"),
        (["a.wav", "a.txt"], ["--templates", "0"], "bad_value", "0 templates"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, files: list[str], more: list[str], code: str, named: str
) -> None:
    folder = tmp_path / "audio"
    folder.mkdir()
    for name in files:
        if name.endswith(".wav"):
            soundfile.write(folder / name, low(500), RATE_HZ)
        else:
            (folder / name).write_text("oo")
    with pytest.raises(ConfigError, match=named) as caught:
        build("--audio", folder, "--out", tmp_path / "x.json", *more)
    assert caught.value.code == code
    assert not (tmp_path / "x.json").exists()


def test_a_file_that_cannot_be_written_is_named(timed_folder: Path) -> None:
    (timed_folder.parent / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file.x\.json") as caught:
        build("--audio", timed_folder, "--out", timed_folder.parent / "file" / "x.json")
    assert caught.value.code == "cannot_write"


def test_a_recording_that_is_too_long_is_named(tmp_path: Path) -> None:
    class Short:
        shape = (1, 1)
        max_ms = 10

        def align(self, *_: object) -> None:
            raise ConfigError("recording_too_long", "It does not fit.", "Cut it.")

    path = tmp_path / "long.wav"
    soundfile.write(path, low(500), RATE_HZ)
    with pytest.raises(ConfigError, match=r"long\.wav.*does not fit"):
        labelled_frames(Recording(path, "oo"), Short)  # type: ignore[arg-type]
