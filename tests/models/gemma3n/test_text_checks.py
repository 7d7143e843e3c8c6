from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.gemma3n.text_checks import Fault, find_doubt

REFUSALS = [
    ("I'm sorry, but I cannot transcribe this audio.", True),
    ("I\u2019m sorry, but I can\u2019t help with that.", True),
    ("I am unable to process audio.", True),
    ("Unfortunately, I am not able to listen to recordings.", True),
    ("I don't have the ability to hear.", True),
    ("As an AI language model, I have no ears.", True),
    ("I am just an AI assistant.", True),
    ("Please provide the audio file.", True),
    ("I cannot fulfill this request.", True),
    ("I'm sorry, but I cannot come.", False),
    ("I can't say.", False),
    ("As an AI researcher I like it.", False),
]
REMARKS = [
    ("The audio contains a man speaking about food.", True),
    ("This recording seems to be empty.", True),
    ("The provided audio clip is silent.", True),
    ("Here is the transcription: hello", True),
    ("Sure, here's the transcript of the audio", True),
    ("Transcription: hello", True),
    ("**Transcript:** hello", True),
    ("Transkription des Audios: hallo", True),
    ("Transcripci\u00f3n: hola", True),
    ("The speaker says hello.", False),
    ("Sure, I will write it down.", False),
    ('"Hello there, how are you?"', False),
    ("\u201eHallo\u201c", False),
    ("**Hello** there", False),
    ("# Hello", False),
    ("Hello\n\nthere", False),
    ("To buy:\n- milk\n- bread", False),
    ("First:\n1. milk", False),
]
SPOKEN = [
    "hello world",
    "The audience contains many people.",
    "She said she cannot come.",
    "Here is the money.",
    "Nobody knows what an AI is.",
    "He sang the transcription of a song.",
    "I could not see it, sorry.",
    "What time is it: three or four?",
    'He said "no" and left.',
    "Sure.",
    "As a child I could swim.",
    "two * three",
    "",
    " \n",
]


@pytest.mark.parametrize(("text", "is_strong"), REFUSALS)
def test_refusals_are_doubted(text: str, *, is_strong: bool) -> None:
    doubt = find_doubt(text, None, is_sentence_start=True)
    assert doubt is not None
    assert (doubt.fault, doubt.is_strong) == (Fault.REFUSAL, is_strong)
    assert doubt.sign


@pytest.mark.parametrize(("text", "is_strong"), REMARKS)
def test_remarks_and_formatting_are_doubted(text: str, *, is_strong: bool) -> None:
    doubt = find_doubt(text, None, is_sentence_start=True)
    assert doubt is not None
    assert (doubt.fault, doubt.is_strong) == (Fault.META, is_strong)


@pytest.mark.parametrize("text", SPOKEN)
def test_speech_is_not(text: str) -> None:
    assert find_doubt(text, "en", is_sentence_start=True) is None


@pytest.mark.parametrize("text", [text for text, _ in REFUSALS])
def test_phrases_count_where_a_sentence_begins(text: str) -> None:
    assert find_doubt(text, None, is_sentence_start=False) is None
    later = find_doubt(f"so he said. {text}", None, is_sentence_start=False)
    assert later is not None
    assert later.fault == Fault.REFUSAL
    assert find_doubt(f"he said {text}", None, is_sentence_start=True) is None


def test_another_language_is_doubted_only_where_one_was_asked_for() -> None:
    text = "and what would you do with the rest of it"
    doubt = find_doubt(text, "de", is_sentence_start=False)
    assert doubt is not None
    assert doubt.fault == Fault.DRIFT
    assert find_doubt(text, "en", is_sentence_start=False) is None
    assert find_doubt(text, None, is_sentence_start=False) is None


@given(
    words=st.lists(
        st.sampled_from(["one", "no", "zero", "we", "you", "never", "yes"]), max_size=30
    ),
    language=st.sampled_from([None, "en"]),
    is_start=st.booleans(),
)
def test_ordinary_words_in_any_order_are_never_doubted(
    *, words: list[str], language: str | None, is_start: bool
) -> None:
    assert find_doubt(" ".join(words), language, is_sentence_start=is_start) is None


@given(text=st.text(max_size=60), is_start=st.booleans())
def test_any_text_gets_an_answer_that_blanks_around_it_do_not_change(
    *, text: str, is_start: bool
) -> None:
    doubt = find_doubt(text, None, is_sentence_start=is_start)
    assert doubt == find_doubt(f"  {text}  ", None, is_sentence_start=is_start)
    if doubt is not None:
        assert doubt.fault in {Fault.REFUSAL, Fault.META}
        assert re.search(r"\S|\n", doubt.sign)


@pytest.mark.parametrize("text", [text for text, _ in REFUSALS + REMARKS[:11]])
def test_case_does_not_matter(text: str) -> None:
    doubts = {
        find_doubt(changed, None, is_sentence_start=True)
        for changed in (text, text.upper(), text.lower())
    }
    assert len(doubts) == 1
