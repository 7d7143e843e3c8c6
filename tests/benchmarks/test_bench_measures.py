from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measures import (
    Arrival,
    Errors,
    changed_commitments,
    errors,
    final_text,
    final_words,
    n_erased_words,
    n_same_prefix,
    n_words_ever_shown,
    normalised,
    percentiles,
    reference_ends_ms,
    scored_units,
    word_timings,
)
from tests.benchmarks.making import arrival


def test_case_punctuation_and_hyphens_are_not_scored() -> None:
    assert normalised("  Cold-hearted, and — «RATHER» ill-disposed!") == (
        "cold hearted and rather ill disposed"
    )
    assert normalised("客観的、実在の。") == "客観的実在の"
    assert normalised("\uff21\uff22") == "ab"  # full-width letters


def test_languages_without_spaces_are_scored_by_character() -> None:
    assert scored_units("砸 自己的脚。", "zh") == ["砸", "自", "己", "的", "脚"]
    assert scored_units("Ask not!", "en") == ["ask", "not"]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "language", "expected"),
    [
        ("he could wait", "He could wait.", "en", Errors(0, 0, 0, 3)),
        ("he could wait", "he should wait", "en", Errors(1, 0, 0, 3)),
        ("he could wait", "he wait", "en", Errors(0, 1, 0, 3)),
        ("he could wait", "he could wait no longer", "en", Errors(0, 0, 2, 3)),
        ("he could wait", "", "en", Errors(0, 3, 0, 3)),
        ("", "thank you", "en", Errors(0, 0, 2, 0)),
        ("砸自己的脚", "扎自己的", "zh", Errors(1, 1, 0, 5)),
    ],
)
def test_errors_are_told_apart(
    reference: str, hypothesis: str, language: str, expected: Errors
) -> None:
    assert errors(reference, hypothesis, language) == expected


def test_errors_add_up_before_they_are_divided() -> None:
    pooled = Errors(1, 0, 0, 2) + Errors(0, 1, 2, 6)
    assert pooled == Errors(1, 1, 2, 8)
    assert pooled.total == 4
    assert pooled.rate == 0.5
    assert Errors(insertions=2).rate == 2.0  # nothing was said


def test_a_word_is_shown_from_its_first_time_at_its_place_and_spelling() -> None:
    stream = [
        arrival(100, "a pair"),
        arrival(200, "A paced up", n_final=1),
        arrival(300, "A paced", n_final=1),
        arrival(400, "A paced, up", n_final=2),
        arrival(500, "A paced, up.", is_final=True),
    ]
    times = [(t.word.text, t.shown_ms, t.committed_ms) for t in word_timings(stream)]
    assert times == [("A", 100, 200), ("paced,", 200, 400), ("up.", 200, 500)]


def test_segments_do_not_lend_each_other_their_times() -> None:
    stream = [
        arrival(100, "one", is_final=True),
        arrival(900, "one", n_final=1, segment=1),
        arrival(950, "one two", is_final=True, segment=1),
    ]
    times = [(t.shown_ms, t.committed_ms) for t in word_timings(stream)]
    assert times == [(100, 100), (900, 900), (950, 950)]


def test_words_without_a_final_caption_have_no_times() -> None:
    assert word_timings([arrival(100, "gone")]) == []
    assert final_words([arrival(100, "gone")]) == []


def test_the_final_text_is_that_of_all_segments() -> None:
    stream = [arrival(1, "a b"), arrival(2, "a c", is_final=True), arrival(3, "", is_final=True)]
    assert final_text([*stream, arrival(4, "d", is_final=True, segment=1)]) == "a c d"


def test_ends_come_from_the_words_that_stand_opposite() -> None:
    reference = [("Mr", 800.0), ("Quilter", 1180.0), ("is", 1380.0), ("the", 1500.0)]
    found = reference_ends_ms(["Quilter,", "was", "indeed", "the"], reference, "en")
    assert found == [1180.0, None, None, 1500.0]
    found = reference_ends_ms(["Mister", "Quilter", "was"], reference[:3], "en")
    assert found == [800.0, 1180.0, 1380.0]
    assert reference_ends_ms([], reference, "en") == []
    assert reference_ends_ms(["what"], [], "en") == [None]


def test_words_cut_differently_share_an_end_only_where_both_end() -> None:
    reference = [("客観", 1220.0), ("的", 1500.0), ("実在", 2050.0)]
    found = reference_ends_ms(["客", "観", "的実", "在。"], reference, "ja")
    assert found == [None, 1220.0, None, 2050.0]
    assert reference_ends_ms(["。"], reference, "ja") == [None]


def test_growing_text_erases_nothing() -> None:
    stream = [
        arrival(1, "one"),
        arrival(2, "one two"),
        arrival(3, "one two", is_final=True),
        arrival(4, "three", segment=1),
        arrival(5, "three", is_final=True, segment=1),
    ]
    assert n_erased_words(stream) == 0


def test_all_behind_the_first_change_counts_as_erased() -> None:
    stream = [
        arrival(1, "one two three"),
        arrival(2, "one too three"),  # two and three
        arrival(3, "one too", is_final=True),  # handed on, so far
        arrival(4, "four", segment=1),  # three
        arrival(5, "four", is_final=True, segment=1),
    ]
    assert n_erased_words(stream) == 3


def test_case_and_punctuation_count_only_when_asked_for() -> None:
    stream = [arrival(1, "one two"), arrival(2, "One, two", is_final=True)]
    assert n_erased_words(stream) == 2
    assert n_erased_words(stream, normalised) == 0


def test_a_split_segment_hands_its_tail_on() -> None:
    stream = [
        arrival(1, "one two three"),
        arrival(2, "one two", is_final=True),
        arrival(3, "three four", segment=1),
        arrival(4, "three four", is_final=True, segment=1),
    ]
    assert n_erased_words(stream) == 0


def test_what_vanishes_at_the_end_of_the_stream_was_erased() -> None:
    assert n_erased_words([arrival(1, "one two"), arrival(2, "one", is_final=True)]) == 1
    assert n_erased_words([arrival(1, "one two"), arrival(2, "", is_final=True)]) == 2
    assert n_erased_words([]) == 0


TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=5).map(" ".join), max_size=8)


@given(TEXTS)
def test_erasure_is_bounded_by_what_was_displayed(texts: list[str]) -> None:
    stream = [arrival(i, text) for i, text in enumerate(texts)]
    assert 0 <= n_erased_words(stream) <= sum(len(text.split()) for text in texts)


@given(TEXTS)
def test_a_text_shown_twice_in_a_row_erases_no_more(texts: list[str]) -> None:
    once = [arrival(i, text) for i, text in enumerate(texts)]
    twice = [arrival(i, text) for i, text in enumerate(texts) for _ in range(2)]
    assert n_erased_words(once) == n_erased_words(twice)


def test_prefixes() -> None:
    assert n_same_prefix("abcd", "abxd") == 2
    assert n_same_prefix("ab", "abcd") == 2
    assert n_same_prefix("", "a") == 0


def test_a_committed_word_that_changes_moves_or_goes_is_counted() -> None:
    first = arrival(1, "one two three", n_final=2)
    assert changed_commitments([first, arrival(2, "one two four", n_final=3)]) == 0
    assert changed_commitments([first, arrival(2, "one too", n_final=2)]) == 1
    assert changed_commitments([first, arrival(2, "one", n_final=1)]) == 1
    assert changed_commitments([first, arrival(2, "one two", n_final=1)]) == 1  # not final any more
    assert changed_commitments([first, arrival(2, "one two", n_final=2, segment=1)]) == 0
    moved = replace(first.caption, words=(first.caption.words[0], *first.caption.words[2:]))
    assert changed_commitments([first, Arrival(2, moved)]) == 1


def test_shown_words_are_counted_once_a_segment() -> None:
    stream = [
        arrival(1, "a b c"),
        arrival(2, "a", is_final=True),
        arrival(3, "d e", is_final=True, segment=1),
    ]
    assert n_words_ever_shown(stream) == 5
    assert n_words_ever_shown([]) == 0


def test_percentiles() -> None:
    assert percentiles(range(101)) == {"n": 101, "p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert percentiles([]) == {"n": 0}
