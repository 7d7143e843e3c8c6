from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tools.digits_data import Conditions
from tools.digits_eval import ErrorRate, distance, error_rate, transcribe, whole_slots
from tools.digits_eval import test_strings as strings_of
from tools.digits_mel import LogMel
from tools.digits_model import AUDIO_TOKEN, BOA, BOS, DIGIT_0, EOA, EOS, DigitsModel, digits_config
from tools.digits_pool import make_extractor

if TYPE_CHECKING:
    from tools.digits_data import DigitBank

DIGITS = st.lists(st.integers(0, 9), max_size=8)


@pytest.fixture(scope="module")
def model() -> DigitsModel:
    torch.manual_seed(5)
    return DigitsModel(digits_config()).eval()


@given(said=DIGITS, heard=DIGITS, other=DIGITS)
def test_the_distance_is_a_metric(said: list[int], heard: list[int], other: list[int]) -> None:
    assert (distance(said, heard) == 0) == (said == heard)
    assert distance(said, heard) == distance(heard, said)
    assert distance(said, heard) <= distance(said, other) + distance(other, heard)


def test_the_distance_counts_wrong_missing_and_extra() -> None:
    assert distance([1, 2, 3], [1, 5, 3]) == 1
    assert distance([1, 2, 3], [1, 3]) == 1
    assert distance([1, 2, 3], [1, 2, 2, 3]) == 1
    assert distance([1, 2, 3], []) == 3


def test_a_rate_is_errors_over_spoken_digits() -> None:
    assert ErrorRate(3, 60).percent == 5.0


def test_strings_have_the_lengths_asked_for_and_depend_on_the_seed(bank: DigitBank) -> None:
    one, again = (strings_of(2, bank, [1, 5], Conditions()) for _ in range(2))
    other = strings_of(3, bank, [1, 5], Conditions())
    assert [len(string.digits) for string in one] == [1, 5]
    assert np.array_equal(one[1].samples, again[1].samples)
    assert one[1].digits != other[1].digits


@given(n_samples=st.integers(1, 20_000))
def test_whole_slots_keep_the_samples_and_add_silence(n_samples: int) -> None:
    padded = whole_slots(np.ones(n_samples, np.float32))
    frames = (len(padded) - 513) // 160 + 1
    assert frames % 16 == 0
    assert frames * 160 >= n_samples
    assert padded[:n_samples].all()
    assert not padded[n_samples:].any()


def test_reading_through_the_cache_equals_reading_at_once(model: DigitsModel) -> None:
    mel = torch.randn(16 * 40, 128)  # longer than the sliding window
    digits = transcribe(model, mel)
    tokens = [DIGIT_0 + digit for digit in digits]
    with torch.no_grad():
        slots = model.hear(mel[None])
        tail = torch.tensor([[EOA, *tokens]])
        head = torch.tensor([[BOS, BOA]])
        ids = torch.cat([head, torch.full((1, 40), AUDIO_TOKEN), tail], dim=1)
        embeddings = torch.cat([model.embed(head), slots, model.embed(tail)], dim=1)
        logits = model.logits(ids, embeddings)[0, 42:]
    expected = logits.argmax(-1).tolist()
    assert expected[: len(tokens)] == tokens
    if len(tokens) < 64:
        assert expected[-1] == EOS


def test_the_error_rate_is_over_all_strings(model: DigitsModel, bank: DigitBank) -> None:
    mel = LogMel(make_extractor(0, bank))
    strings = strings_of(0, bank, [1, 2], Conditions())
    rate = error_rate(model, mel, strings)
    assert rate.n_digits == 3
    expected = [
        distance(transcribe(model, mel(whole_slots(one.samples)[None])[0]), one.digits)
        for one in strings
    ]
    assert rate.n_errors == sum(expected)
