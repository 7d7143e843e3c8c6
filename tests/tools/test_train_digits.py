from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from tools.digits_files import read_checkpoint
from tools.train_digits import parser, train

if TYPE_CHECKING:
    from pathlib import Path


def trained(tones: Path, folder: Path, *more: str) -> dict[str, torch.Tensor]:
    arguments = ["--speech", str(tones), "--out", str(folder / "out"), "--work", str(folder)]
    few = [
        "--pool",
        "2",
        "--listening-steps",
        "1",
        "--reading-steps",
        "1",
        "--save-every",
        "9",
        "--watch",
        "1",
    ]
    train(parser().parse_args([*arguments, *few, *more]))
    return load_file(folder / "out" / "model.safetensors")


def test_the_recipe_writes_a_checkpoint_and_repeats_itself(tones: Path, tmp_path: Path) -> None:
    weights = trained(tones, tmp_path / "one")
    model, extractor = read_checkpoint(tmp_path / "one" / "out")
    assert not model.training
    assert extractor.per_bin_mean is not None
    again = trained(tones, tmp_path / "one")  # taken up at its end: nothing is left to do
    other = trained(tones, tmp_path / "other", "--seed", "4")
    assert all(torch.equal(again[name], one) for name, one in weights.items())
    assert not all(torch.equal(other[name], one) for name, one in weights.items())
