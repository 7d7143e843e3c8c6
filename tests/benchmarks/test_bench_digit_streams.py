from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.streaming.captions import Word
from benchmarks.digit_streams import (
    TAIL_MS,
    DigitStream,
    StreamPlan,
    alone,
    bank_of_test_takes,
    digit_stream,
    errors_of_strings,
    join_strings,
    words_of_strings,
)
from tests.benchmarks.making import arrival
from tools.digits_data import WORDS, DigitBank, Recording, speech_level, string_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.measures import Arrival

PLAN = StreamPlan(n_digits=(2, 4), gaps_ms=(500, 900))


@pytest.fixture(scope="module")
def bank() -> DigitBank:
    """Each digit a tone of its own, of its own length."""
    time = np.arange(16_000) / 16_000
    tones = [np.sin(2 * np.pi * (300 + 40 * digit) * time) for digit in range(10)]
    return DigitBank(
        [
            Recording(digit, "tone", tone[: 3200 + 320 * digit].astype(np.float32))
            for digit, tone in enumerate(tones)
        ]
    )


def said(*words: tuple[str, float, float]) -> list[Arrival]:
    """One final caption."""
    found = tuple(Word(text, round(a), round(b), 0.9, is_final=True) for text, a, b in words)
    made = arrival(0.0, " ".join(one.text for one in found), is_final=True)
    return [replace(made, caption=replace(made.caption, words=found))]


def spoken(stream: DigitStream) -> list[tuple[str, float, float]]:
    return [
        word
        for one in stream.strings
        for word in zip(one.words, one.starts_ms, one.ends_ms, strict=True)
    ]


def test_words_are_where_the_stream_says(bank: DigitBank) -> None:
    stream = digit_stream(bank, 20_000, 1, PLAN)
    assert stream.duration_ms >= 20_000
    assert stream.n_digits == len(spoken(stream)) >= 10
    for text, start_ms, end_ms in spoken(stream):
        assert end_ms - start_ms == pytest.approx(200 + 20 * WORDS.index(text), abs=0.1)
        inside = stream.samples[round(start_ms * 16) + 80 : round(end_ms * 16) - 80]
        outside = stream.samples[round(end_ms * 16) + 80 : round(end_ms * 16) + 400]
        assert np.std(inside) > 2 * np.std(outside)


def test_lengths_and_gaps_are_those_of_the_plan(bank: DigitBank) -> None:
    stream = digit_stream(bank, 60_000, 2, PLAN)
    assert {len(one.words) for one in stream.strings} == {2, 3, 4}
    gaps_ms = [b.start_ms - a.end_ms for a, b in pairwise(stream.strings)]
    assert min(gaps_ms) >= 500
    assert max(gaps_ms) <= 900
    assert stream.strings[0].start_ms >= 500
    quiet = replace(PLAN, conditions=replace(PLAN.conditions, quiet_share=1.0, tilt_db=0.0))
    assert not np.array_equal(digit_stream(bank, 60_000, 2, quiet).samples, stream.samples)


def test_a_stream_repeats_itself_and_a_longer_one_begins_alike(bank: DigitBank) -> None:
    short, again, longer, other = (
        digit_stream(bank, length_ms, seed, PLAN)
        for length_ms, seed in ((9_000, 1), (9_000, 1), (15_000, 1), (9_000, 2))
    )
    assert np.array_equal(short.samples, again.samples)
    assert longer.strings[: len(short.strings)] == short.strings
    assert len(longer.strings) > len(short.strings)
    assert other.strings != short.strings


def test_one_string_begins_at_once_and_ends_in_near_silence(bank: DigitBank) -> None:
    string = string_of(np.random.default_rng(1), bank, 3, PLAN.conditions)
    stream = alone(string)
    assert stream.strings[0].start_ms == 0
    assert np.array_equal(stream.samples[: string.samples.size], string.samples)
    tail = stream.samples[string.samples.size :]
    assert tail.size == TAIL_MS * 16
    assert 0 < np.abs(tail).max() < 0.01


def test_every_string_needs_its_gap(bank: DigitBank) -> None:
    string = string_of(np.random.default_rng(1), bank, 1, PLAN.conditions)
    with pytest.raises(ValueError, match="shorter"):
        join_strings([string, string], [100])


def test_right_captions_have_no_errors_and_late_ones_none_either(bank: DigitBank) -> None:
    stream = digit_stream(bank, 15_000, 3, PLAN)
    for late_ms in (0, 150):
        moved = [(text, a + late_ms, b + late_ms) for text, a, b in spoken(stream)]
        found = errors_of_strings(stream, said(*moved))
        assert sum(one.total for one in found) == 0
        assert sum(one.n_reference for one in found) == stream.n_digits


def test_errors_fall_to_the_string_they_are_in(bank: DigitBank) -> None:
    stream = digit_stream(bank, 15_000, 3, PLAN)
    words = spoken(stream)
    n_first = len(stream.strings[0].words)
    kept = words[: n_first - 1] + words[n_first:]
    found = errors_of_strings(stream, said(*kept))
    assert [one.deletions for one in found[:2]] == [1, 0]
    assert len(words_of_strings(stream, said(*kept))[0]) == n_first - 1


def test_only_test_takes_are_spoken(speech_folder: Path) -> None:
    bank = bank_of_test_takes(speech_folder / "digits")
    assert len(bank.speakers) == 6
    assert all(len(bank._by_digit[digit]) == 5 * 6 for digit in range(10))


def test_a_folder_without_digits_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--digits"):
        bank_of_test_takes(tmp_path)


def test_noise_goes_on_between_strings_and_lies_below_the_softest(bank: DigitBank) -> None:
    loud = replace(PLAN.conditions, quiet_share=0.0, snr_db=(20.0, 20.0))
    noisy = digit_stream(bank, 90_000, 4, replace(PLAN, conditions=loud))
    quiet = digit_stream(bank, 90_000, 4, replace(PLAN, conditions=replace(loud, quiet_share=1.0)))
    assert noisy.strings == quiet.strings
    noise = noisy.samples - quiet.samples
    per_second = [np.std(noise[at : at + 16_000]) for at in range(32_000, 80_000 * 16, 16_000)]
    assert min(per_second) > 0.4 * max(per_second[:26])  # it never stops, also not while it changes
    levels = [
        speech_level(quiet.samples[round(one.start_ms * 16) : round(one.end_ms * 16)])
        for one in quiet.strings
        if one.start_ms < 30_000
    ]
    assert np.median(per_second[:26]) == pytest.approx(min(levels) / 10, rel=0.05)
