from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch.nn.functional import ctc_loss as torch_ctc_loss

from tools.digits_data import Conditions
from tools.digits_eval import test_strings as strings_of
from tools.digits_listening import BLANK, Listening, ListeningPlan, ctc_loss, spelled
from tools.digits_mel import LogMel
from tools.digits_model import DigitsModel, digits_config
from tools.digits_pool import MelPool, Window, make_extractor, make_pool

if TYPE_CHECKING:
    from tools.digits_data import DigitBank

PLAN = ListeningPlan(n_steps=2, n_windows=2, n_slots=10, n_warm_up=1)


@pytest.fixture(scope="module")
def mel(bank: DigitBank) -> LogMel:
    return LogMel(make_extractor(0, bank))


@pytest.fixture(scope="module")
def pool(bank: DigitBank, mel: LogMel, tmp_path_factory: pytest.TempPathFactory) -> MelPool:
    return make_pool(0, bank, mel, 2, tmp_path_factory.mktemp("pool") / "pool.pt")


def stage(pool: MelPool, plan: ListeningPlan = PLAN) -> Listening:
    torch.manual_seed(0)
    return Listening(DigitsModel(digits_config()), pool, plan)


def window(*digits: int) -> Window:
    times = tuple(float(at) for at in range(len(digits)))
    return Window(torch.zeros(0), digits, times, times)


def test_the_loss_is_ctc_per_digit_and_silence_counts() -> None:
    logits = torch.randn(2, 6, BLANK + 1)
    expected = (
        torch_ctc_loss(
            logits[:1].log_softmax(-1).transpose(0, 1),
            torch.tensor([[3, 3]]),
            torch.tensor([6]),
            torch.tensor([2]),
            blank=BLANK,
            reduction="sum",
        )
        - logits[1].log_softmax(-1)[:, BLANK].sum()
    )
    torch.testing.assert_close(ctc_loss(logits, [window(3, 3), window()]), expected / 2)


def test_the_best_path_joins_repeats_and_drops_blanks() -> None:
    path = [BLANK, 3, 3, BLANK, 3, 7, BLANK]
    assert spelled(torch.eye(BLANK + 1)[path]) == [3, 3, 7]


def test_a_step_learns_in_tower_and_embedder_but_not_in_the_text_model(pool: MelPool) -> None:
    listening = stage(pool)
    before = {name: one.clone() for name, one in listening.model.state_dict().items()}
    assert np.isfinite(listening.advance())
    changed = {
        name.split(".")[0]
        for name, one in listening.model.state_dict().items()
        if not torch.equal(one, before[name])
    }
    assert changed == {"audio_tower", "embed_audio"}


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, seed=4),
        replace(PLAN, n_windows=3),
        replace(PLAN, n_slots=12),
        replace(PLAN, loudness=3.0),
        replace(PLAN, n_masked_bins=100),
    ],
)
def test_everything_in_the_plan_changes_the_batch(pool: MelPool, other: ListeningPlan) -> None:
    same = [float(stage(pool).loss(0).detach()) for _ in range(2)]
    assert same[0] == same[1]
    assert float(stage(pool, other).loss(0).detach()) != same[0]


def test_the_report_gives_the_error_of_the_spelling(
    pool: MelPool, mel: LogMel, bank: DigitBank
) -> None:
    listening = stage(pool)
    with torch.no_grad():  # a head that spells nothing misses every digit
        listening.spelling.weight.zero_()
        listening.spelling.bias.copy_(torch.eye(BLANK + 1)[BLANK])
    strings = strings_of(0, bank, [2, 1], Conditions())
    assert listening.report(mel, strings) == "spelling: 100.0 %"
