from __future__ import annotations

import math

import numpy as np

from audiokv.models.gemma3n.tail_decoding import Continuation
from audiokv.models.gemma3n.word_times import timed_words, without_loop
from audiokv.models.whisper.text import TokenWord

WORDS = [TokenWord("one,", (1, 2), space_before=False), TokenWord("two", (3,), space_before=True)]
SPANS = np.array([[160, 320], [320, 480], [640, 960]])


def test_a_word_lasts_from_its_first_to_its_last_token() -> None:
    one, two = timed_words(WORDS, SPANS, [-0.1, -0.3, 0.0], 0)
    assert (one.text, one.start_ms, one.end_ms, one.space_before) == ("one,", 160, 480, False)
    assert (two.text, two.start_ms, two.end_ms, two.space_before) == ("two", 640, 960, True)
    assert one.confidence == round(math.exp(-0.2), 3)
    assert two.confidence == 1.0


def test_words_keep_behind_each_other_and_behind_what_is_committed() -> None:
    spans = np.array([[160, 320], [320, 800], [640, 700]])
    one, two = timed_words(WORDS, spans, [-1.0] * 3, 200)
    assert (one.start_ms, one.end_ms, two.start_ms, two.end_ms) == (200, 800, 800, 800)
    one, two = timed_words(WORDS, spans, [-1.0] * 3, 5_000)
    assert {one.start_ms, one.end_ms, two.start_ms, two.end_ms} == {5_000}


def test_no_words_need_no_spans() -> None:
    assert timed_words([], np.empty((0, 2), np.int64), [], 0) == []


LOOP = [8, 7, 7, 7, 7, 9]


def said(tokens: list[int], *, is_looping: bool = False) -> Continuation:
    attention = np.ones((1, len(tokens) + 1, 3), np.float32)
    return Continuation(tokens, [-0.1] * len(tokens), attention, not is_looping, is_looping, 1)


def test_repeats_faster_than_speech_are_left_out_where_times_are_clear() -> None:
    at_once = np.full((6, 2), 160)
    assert without_loop(said(LOOP), at_once, has_clear_times=True) == [8, 7]
    assert without_loop(said(LOOP), at_once, has_clear_times=False) == LOOP
    one_by_one = np.stack((np.arange(6), np.arange(1, 7)), axis=1) * 320
    assert without_loop(said(LOOP), one_by_one, has_clear_times=True) == LOOP


def test_a_text_that_was_cut_keeps_one_of_what_it_repeats() -> None:
    one_by_one = np.stack((np.arange(6), np.arange(1, 7)), axis=1) * 320
    cut = said(LOOP, is_looping=True)
    assert without_loop(cut, one_by_one, has_clear_times=False) == [8, 7]


def test_nothing_said_has_no_loop() -> None:
    nothing = np.empty((0, 2), np.int64)
    assert without_loop(said([]), nothing, has_clear_times=True) == []
