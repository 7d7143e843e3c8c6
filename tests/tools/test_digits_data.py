from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.digits_data import (
    Conditions,
    DigitBank,
    Recording,
    SpokenString,
    fill,
    load_recordings,
    string_of,
)

if TYPE_CHECKING:
    from pathlib import Path

CLEAN = Conditions(quiet_share=1.0, tilt_db=0.0, gain_db=(0.0, 0.0))


def said(bank: DigitBank, conditions: Conditions, n_digits: int = 6, seed: int = 1) -> SpokenString:
    return string_of(np.random.default_rng(seed), bank, n_digits, conditions)


def pauses_ms(string: SpokenString) -> list[float]:
    return [b - a for a, b in zip(string.end_ms, string.start_ms[1:], strict=False)]


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))


def test_the_test_takes_are_never_in_the_training_split(tones: Path) -> None:
    train = load_recordings(tones, is_test=False)
    test = load_recordings(tones, is_test=True)
    assert len(train) == len(test) == 40
    heard = {one.samples.tobytes() for one in train}
    assert not heard & {one.samples.tobytes() for one in test}


def test_recordings_come_at_16_khz_and_once_at_each_speed(tones: Path) -> None:
    plain = load_recordings(tones, is_test=True)
    both = load_recordings(tones, is_test=True, speeds=(1.0, 1.25))
    assert len(both) == 2 * len(plain)
    assert len(plain[0].samples) == pytest.approx(4800, abs=2)
    assert len(both[1].samples) == pytest.approx(3840, abs=2)


def test_a_folder_without_digits_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        load_recordings(tmp_path, is_test=True)


def test_a_bank_needs_every_digit() -> None:
    with pytest.raises(ValueError, match="each digit"):
        DigitBank([Recording(3, "ann", np.zeros(10, np.float32))])


def test_a_bank_draws_the_digit_and_the_speaker_asked_for(bank: DigitBank) -> None:
    rng = np.random.default_rng(0)
    drawn = [bank.draw(rng, 7, "bob") for _ in range(20)]
    assert {(one.digit, one.speaker) for one in drawn} == {(7, "bob")}
    assert {bank.draw(rng, 7, None).speaker for _ in range(40)} == {"ann", "bob"}


@given(n_digits=st.integers(1, 24), seed=st.integers(0, 1000))
def test_times_lie_in_order_within_the_string(bank: DigitBank, n_digits: int, seed: int) -> None:
    string = said(bank, CLEAN, n_digits, seed)
    assert len(string.digits) == len(string.start_ms) == len(string.end_ms) == n_digits
    edges = [edge for pair in zip(string.start_ms, string.end_ms, strict=True) for edge in pair]
    assert edges == sorted(edges)
    assert string.start_ms[0] == 300.0
    assert len(string.samples) / 16.0 == string.end_ms[-1] + 300.0


def test_sound_is_where_the_times_say(bank: DigitBank) -> None:
    string = said(bank, CLEAN)
    is_loud = np.zeros(len(string.samples), bool)
    for start, end in zip(string.start_ms, string.end_ms, strict=True):
        is_loud[round(start * 16) : round(end * 16)] = True
    assert rms(string.samples[~is_loud]) == 0.0
    assert rms(string.samples[is_loud]) > 0.1


@given(seed=st.integers(0, 1000))
def test_a_filled_string_has_its_length_and_whole_digits(bank: DigitBank, seed: int) -> None:
    string = fill(np.random.default_rng(seed), bank, 40_000, Conditions())
    assert len(string.samples) == 40_000
    assert string.samples.dtype == np.float32
    assert all(end <= 2500.0 for end in string.end_ms)
    assert np.abs(string.samples).max() <= 1.0


def test_pauses_follow_their_range(bank: DigitBank) -> None:
    short = replace(CLEAN, pauses_ms=(20.0, 40.0), long_pause_share=0.0)
    assert all(19.0 <= pause <= 41.0 for pause in pauses_ms(said(bank, short, 20)))
    long = replace(CLEAN, pauses_ms=(20.0, 40.0), long_pause_share=1.0, long_pause_ms=900.0)
    assert all(39.0 <= pause <= 901.0 for pause in pauses_ms(said(bank, long, 20)))
    assert max(pauses_ms(said(bank, long, 20))) > 300.0


def test_noise_has_the_level_asked_for(bank: DigitBank) -> None:
    noisy = replace(CLEAN, quiet_share=0.0, snr_db=(20.0, 20.0))
    string = said(bank, noisy)
    before = rms(string.samples[: 290 * 16])
    start, end = (round(edge * 16) for edge in (string.start_ms[0], string.end_ms[0]))
    assert 10.0 < 20.0 * np.log10(rms(string.samples[start:end]) / before) < 30.0


def test_gain_and_tilt_change_level_and_colour(bank: DigitBank) -> None:
    plain = said(bank, CLEAN)
    louder = said(bank, replace(CLEAN, gain_db=(-6.0, -6.0)))
    assert rms(louder.samples) == pytest.approx(rms(plain.samples) * 10 ** (-6 / 20), rel=0.01)
    tilted = said(bank, replace(CLEAN, tilt_db=12.0))
    assert not np.allclose(tilted.samples[: len(plain.samples)], plain.samples, atol=1e-3)


def test_the_same_seed_says_the_same(bank: DigitBank) -> None:
    one, two, other = (said(bank, Conditions(), seed=seed) for seed in (4, 4, 5))
    assert one.digits == two.digits
    assert np.array_equal(one.samples, two.samples)
    assert one.digits != other.digits
