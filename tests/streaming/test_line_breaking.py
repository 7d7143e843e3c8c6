from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.line_breaking import (
    BAD_BREAK,
    CLAUSE_BREAK,
    PLAIN_BREAK,
    SENTENCE_BREAK,
    Token,
    break_cost,
    break_lines,
    clean_text,
    clusters,
    columns_of_language,
    continues,
    cut_to_columns,
    display_columns,
    fill_line,
    fits_two_lines,
    join_tokens,
    split_to_fit,
)


def tokens_of(text: str) -> list[Token]:
    return [Token(word, i * 100, i * 100 + 80) for i, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\nb", "a b"),
        ("\x1b[31mred", "[31mred"),
        ("a\u2028\u2029b", "a b"),
        ("x\ud800y", "x\ufffdy"),
        ("  kept\u00a0! ", "kept\u00a0!"),
    ],
)
def test_cleaning_takes_out_what_breaks_files_and_terminals(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("日本語", 6),
        ("ｶﾅ", 2),
        ("e\u0301", 1),
        ("\u200b", 0),
        ("👩‍👩‍👧", 2),
        ("🇩🇪🇫🇷", 4),
        ("☎\ufe0f", 2),
        ("👍🏽", 2),
        ("שָׁלוֹם", 4),
        ("\u1112\u1161\u11ab", 2),
        ("नि", 1),
    ],
)
def test_columns_are_those_a_reader_sees(text: str, columns: int) -> None:
    assert display_columns(text) == columns


@settings(deadline=None)
@given(st.text())
def test_clusters_hold_the_whole_text(text: str) -> None:
    assert "".join(clusters(text)) == text


def test_three_regional_letters_are_a_flag_and_a_letter() -> None:
    assert [len(cluster) for cluster in clusters("🇩🇪🇫")] == [2, 1]


def test_a_mark_continues_the_text_before_it() -> None:
    assert continues("e", "\u0301x")
    assert not continues("e", "x")


def test_columns_of_a_line_depend_on_the_language() -> None:
    assert [columns_of_language(code) for code in ("en", None, "zh", "ja", "ko")] == [
        42,
        42,
        32,
        26,
        32,
    ]


def test_cutting_marks_what_was_cut() -> None:
    assert cut_to_columns("short", 8) == "short"
    assert cut_to_columns("a long text", 7) == "a long…"
    assert cut_to_columns("日本語日本語", 6) == "日本…"


@settings(deadline=None)
@given(st.text(min_size=1), st.integers(1, 20))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    assert display_columns(cut_to_columns(text, columns)) <= columns


def test_a_token_that_fits_stays_whole() -> None:
    token = Token("Donaudampfschifffahrtsgesellschaft", 0, 900)
    assert split_to_fit(token, 42) == [token]


def test_a_token_too_long_is_opened_with_its_time_shared_out() -> None:
    pieces = split_to_fit(Token("abcd", 100, 500), 3)
    assert [piece.text for piece in pieces] == list("abcd")
    assert [piece.start_ms for piece in pieces] == [100, 200, 300, 400]
    assert pieces[-1].end_ms == 500
    assert [piece.space_before for piece in pieces] == [True, False, False, False]
    assert [piece.is_word_start for piece in pieces] == [True, False, False, False]


def test_full_width_text_may_break_anywhere_but_not_inside_a_latin_name() -> None:
    pieces = split_to_fit(Token("株式会社AI研究", 0, 900, space_before=False), 16)
    broken = "".join(("|" if piece.is_word_start else "") + piece.text for piece in pieces)[1:]
    assert broken == "株|式|会|社|AI|研|究"


@pytest.mark.parametrize(
    ("before", "after", "language", "cost"),
    [
        ("end.", "Next", "en", SENTENCE_BREAK),
        ("end.”", "Next", "en", SENTENCE_BREAK),
        ("了。", "我", "zh", SENTENCE_BREAK),
        ("turnips,", "and", "en", CLAUSE_BREAK),
        ("peace", "came", "en", PLAIN_BREAK),
        ("The", "house", "en", BAD_BREAK),
        ("Mr.", "Quilter", "en", BAD_BREAK),
        ("the", "house", None, PLAIN_BREAK),
        ("the", "house", "xx", PLAIN_BREAK),
        ("house", "!", "en", BAD_BREAK),
        ("「", "東京", "ja", BAD_BREAK),
        ("”", "x", "en", PLAIN_BREAK),
    ],
)
def test_breaks_follow_the_sense(
    before: str, after: str, language: str | None, cost: float
) -> None:
    assert break_cost(Token(before, 0, 1), Token(after, 1, 2), language) == cost


def test_a_break_inside_a_word_is_bad() -> None:
    after = Token("b", 1, 2, space_before=False, is_word_start=False)
    assert break_cost(Token("a", 0, 1), after, "en") == BAD_BREAK


def test_a_line_takes_what_fits_and_at_least_one_token() -> None:
    assert fill_line(tokens_of("aa bb cc"), 5) == 2
    assert fill_line(tokens_of("aa bb cc"), 5, indent=1) == 1
    assert fill_line(tokens_of("aaaaaaaa bb"), 5) == 1
    assert fill_line(tokens_of("aa"), 5) == 1


def test_two_lines_are_the_most() -> None:
    assert fits_two_lines(tokens_of("aa bb"), 5)
    assert fits_two_lines(tokens_of("aa bb cc dd"), 5)
    assert not fits_two_lines(tokens_of("aa bb cc dd ee"), 5)


def test_one_line_where_one_is_enough() -> None:
    assert break_lines(tokens_of("He could wait no longer."), 42, "en") == (
        "He could wait no longer.",
    )


def test_the_line_breaks_after_the_comma_and_not_after_the_article() -> None:
    text = "For a full hour he had paced up and down, waiting for the end."
    assert break_lines(tokens_of(text), 42, "en") == (
        "For a full hour he had paced up and down,",
        "waiting for the end.",
    )


@settings(deadline=None)
@given(
    st.lists(st.text("abc日。、 ,.", min_size=1).map(lambda t: t.replace(" ", "x")), min_size=1),
    st.integers(12, 42),
)
def test_lines_keep_every_token_and_fit(words: list[str], columns: int) -> None:
    tokens = [
        piece
        for i, word in enumerate(words)
        for piece in split_to_fit(Token(word, i, i + 1, space_before=bool(i % 2)), columns)
    ]
    while not fits_two_lines(tokens, columns):
        tokens.pop()
    lines = break_lines(tokens, columns, "zh")
    assert all(display_columns(line) <= columns for line in lines)
    assert "".join(lines).replace(" ", "") == join_tokens(tokens).replace(" ", "")
