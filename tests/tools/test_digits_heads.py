from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tools import digits_heads
from tools.digits_data import SpokenString
from tools.digits_heads import attention_to_slots, following_heads
from tools.digits_mel import LogMel, samples_for
from tools.digits_model import DigitsModel, digits_config
from tools.digits_pool import make_extractor

if TYPE_CHECKING:
    from tools.digits_data import DigitBank

STRING = SpokenString(
    np.zeros(samples_for(19), np.float32), (4, 7), (400.0, 1800.0), (700.0, 2200.0)
)


@pytest.fixture(scope="module")
def model() -> DigitsModel:
    torch.manual_seed(0)
    return DigitsModel(digits_config()).eval()


def test_attention_is_that_of_full_layers_over_slots(model: DigitsModel) -> None:
    attention = attention_to_slots(model, torch.randn(160, 128), [3, 1, 4])
    assert sorted(attention) == [1, 3, 5]
    for weights in attention.values():
        assert weights.shape == (4, 3, 10)
        assert (weights >= 0).all()
        assert (weights.sum(-1) < 1).all()  # the rest goes to the other tokens
    assert model.language_model.config._attn_implementation == "sdpa"


def test_the_digits_given_change_what_later_ones_attend_to(model: DigitsModel) -> None:
    mel = torch.randn(160, 128)
    one, other = (attention_to_slots(model, mel, digits)[1] for digits in ([3, 1], [5, 1]))
    torch.testing.assert_close(one[:, 0], other[:, 0])
    assert not torch.allclose(one[:, 1], other[:, 1])


def peaks(*slots: int) -> torch.Tensor:
    return torch.eye(20)[list(slots)]


def test_heads_that_hear_the_digit_are_found(
    model: DigitsModel, bank: DigitBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    mel = LogMel(make_extractor(0, bank))
    heads = {
        1: torch.stack([peaks(3, 12), peaks(12, 3), peaks(3, 3)]),
        3: torch.stack([peaks(6, 16), peaks(1, 12), peaks(8, 12)]),
    }
    monkeypatch.setattr(digits_heads, "attention_to_slots", lambda *_: heads)
    assert following_heads(model, mel, [STRING]) == [(1, 0), (3, 0)]
    assert following_heads(model, mel, [STRING], least=0.5) == [
        (1, 0),
        (1, 2),
        (3, 0),
        (3, 1),
        (3, 2),
    ]
