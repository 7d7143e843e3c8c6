from __future__ import annotations

import pytest
import torch

from audiokv.models.gemma3n.speech_model import SpeechModel
from benchmarks.budget_layers import DeviceClock
from benchmarks.gemma3n_sizes import build_model
from benchmarks.gpu import config_of
from benchmarks.gpu_passes import Mode, SharedPasses, StepSize

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny() -> SpeechModel:
    cut = build_model(config_of("tiny"), CPU, torch.bfloat16, is_whole=True, vocabulary=256)
    return SpeechModel(cut.checkpoint)


class Ticking(DeviceClock):
    """A clock by which everything takes one tick."""

    n_ticks = 0

    def now_ms(self) -> float:
        self.n_ticks += 1
        return float(self.n_ticks)


def test_every_part_is_timed_as_often_as_asked(tiny: SpeechModel) -> None:
    passes = SharedPasses(tiny, 3, 40, StepSize(tail_tokens=9, n_heads=2), Mode.EAGER)
    found = passes.parts_ms(Ticking(CPU), 4)
    parts = ["encode", "load", "read", "keep", "tail", "token"]
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(parts, 4)
    assert {value for values in found.values() for value in values} == {1.0}
    assert passes.sizes[0] == 4  # three streams are padded to four
    assert all(prefix.held == 40 for prefix in passes._prefixes)


def test_the_sizes_of_a_step_count(tiny: SpeechModel) -> None:
    made = [
        SharedPasses(tiny, 1, budget, size, Mode.EAGER)
        for budget, size in [
            (40, StepSize()),
            (400, StepSize()),
            (40, StepSize(tail_tokens=300)),
        ]
    ]
    n_rows = [passes.sizes[1] for passes in made]
    assert n_rows[0] < n_rows[1]
    assert n_rows[0] < n_rows[2]
    assert made[0].session_nbytes < made[1].session_nbytes
    heads = [SharedPasses(tiny, 1, 40, StepSize(n_heads=n), Mode.EAGER) for n in (1, 3)]
    assert [len(passes._decoder.heads) for passes in heads] == [1, 3]
