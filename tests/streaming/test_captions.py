from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.captions import Caption, Notice, SpeechChange, Word, join_words

TEXTS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=5)


def word(text: str, *, space_before: bool = True) -> Word:
    return Word(text, 0, 100, 0.9, space_before=space_before)


@pytest.mark.parametrize("kind", [list, tuple])
def test_words_are_joined_as_their_language_joins_them(kind: type) -> None:
    assert join_words(kind([word("He"), word("hoped"), word("there.")])) == "He hoped there."
    unspaced = [word(c, space_before=False) for c in "你好。"]
    assert join_words(kind(unspaced)) == "你好。"
    assert (
        join_words(kind([*unspaced, word("OK"), word("吗", space_before=False)])) == "你好。 OK吗"
    )
    assert join_words(kind([])) == ""


@given(st.lists(TEXTS, max_size=8))
def test_spaced_words_can_be_split_again(texts: list[str]) -> None:
    assert join_words([word(t) for t in texts]).split(" ") == (texts or [""])


@given(st.lists(TEXTS, max_size=8))
def test_unspaced_words_are_only_concatenated(texts: list[str]) -> None:
    assert join_words([word(t, space_before=False) for t in texts]) == "".join(texts)


def test_a_word_is_tentative_and_spaced_unless_said_otherwise() -> None:
    plain = Word("so", 10, 20, 0.5)
    assert not plain.is_final
    assert plain.space_before


def test_a_notice_needs_no_remedy() -> None:
    assert Notice("no_words", "Voice but no words.").remedy == ""


CAPTION = Caption(
    seq=1,
    segment=0,
    revision=0,
    is_final=False,
    start_ms=0,
    end_ms=100,
    text="so",
    language=None,
    speaker=None,
    words=(word("so"),),
)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (word("so"), "text"),
        (CAPTION, "words"),
        (SpeechChange(is_on=True, at_ms=5), "at_ms"),
        (Notice("a", "b"), "code"),
    ],
)
def test_what_was_said_cannot_be_changed(value: object, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, None)
    assert not hasattr(value, "__dict__")
