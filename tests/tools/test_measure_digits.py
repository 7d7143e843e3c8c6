from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tools.digits_data import DigitBank, load_recordings
from tools.digits_eval import ErrorRate
from tools.digits_files import write_checkpoint
from tools.digits_model import DigitsModel, digits_config
from tools.digits_pool import make_extractor
from tools.measure_digits import GROUPS, measure, parser

if TYPE_CHECKING:
    from pathlib import Path

    from tools.digits_data import SpokenString


@pytest.fixture
def checkpoint(tones: Path, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    bank = DigitBank(load_recordings(tones, is_test=False))
    write_checkpoint(tmp_path, DigitsModel(digits_config()), make_extractor(0, bank))
    return tmp_path


def test_each_group_is_measured_on_so_many_digits(
    tones: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.digits_eval._MAX_WORDS", 3)  # untrained it would never stop
    arguments = ["--speech", str(tones), "--checkpoint", str(checkpoint)]
    rates = measure(parser().parse_args([*arguments, "--digits", "16"]))
    assert {name: rate.n_digits for name, rate in rates.items()} == {
        "1 to 5": 30,
        "6 to 10": 40,
        "20": 20,
    }
    assert all(rate.n_errors > 0 for rate in rates.values())  # it was never trained
    settings = json.loads((checkpoint / "audiokv.json").read_text())
    assert settings["alignment_heads"] == []
    more = ["--digits", "1", "--seed", "12", "--write-heads"]
    other = measure(parser().parse_args([*arguments, *more]))
    assert other["1 to 5"].n_digits == 15
    assert "alignment_heads" in json.loads((checkpoint / "audiokv.json").read_text())


def test_noise_is_as_loud_as_asked_for(
    tones: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[float] = []

    def measured(_model: object, _mel: object, strings: list[SpokenString]) -> ErrorRate:
        margins = [one.samples[:4000] for one in strings]  # silence but for the noise
        loudness = [np.abs(one.samples).max() for one in strings]
        heard.append(max(np.abs(m).max() / full for m, full in zip(margins, loudness, strict=True)))
        return ErrorRate(0, 1)

    monkeypatch.setattr("tools.measure_digits.error_rate", measured)
    arguments = ["--speech", str(tones), "--checkpoint", str(checkpoint), "--digits", "60"]
    for loudest_db in ("0", "45"):
        measure(parser().parse_args([*arguments, "--loudest-noise-db", loudest_db]))
    loud, soft = heard[: len(GROUPS)], heard[len(GROUPS) :]
    assert min(loud) > 0.2
    assert max(soft) < 0.05
