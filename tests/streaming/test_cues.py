# ruff: noqa: RUF001  Chinese punctuation is what is tested
from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.captions import Caption, Word, join_words
from audiokv.streaming.cues import (
    MAX_CUE_MS,
    MIN_CUE_MS,
    Cue,
    CueMaker,
    make_cues,
    speaker_label,
)
from audiokv.streaming.line_breaking import clean_text, columns_of_language, display_columns


def caption_of(
    words: list[Word],
    *,
    language: str | None = "en",
    speaker: str | None = None,
    is_final: bool = True,
) -> Caption:
    return Caption(
        seq=1,
        segment=0,
        revision=0,
        is_final=is_final,
        start_ms=words[0].start_ms if words else 0,
        end_ms=words[-1].end_ms if words else 0,
        text=join_words(words),
        language=language,
        speaker=speaker,
        words=tuple(words),
    )


def spoken(
    text: str, start_ms: int = 0, *, ms_a_word: int = 300, language: str = "en", **kind: str
) -> Caption:
    words = [
        Word(
            word, start_ms + i * ms_a_word, start_ms + (i + 1) * ms_a_word - 20, 0.9, is_final=True
        )
        for i, word in enumerate(text.split())
    ]
    return caption_of(words, language=language, speaker=kind.get("speaker"))


def text_of(cues: list[Cue]) -> str:
    return "".join("".join(cue.lines) for cue in cues).replace(" ", "")


LONG = (
    "He hoped there would be stew for dinner, turnips and carrots and bruised potatoes and fat "
    "mutton pieces to be ladled out in thick peppered flour-fattened sauce. Stuff it into you, "
    "his belly counselled him."
)


def test_a_short_caption_is_one_cue_that_stays_long_enough() -> None:
    assert make_cues([spoken("Yes.", 1000)]) == [Cue(1000, 1000 + MIN_CUE_MS, ("Yes.",), "en")]


def test_long_speech_is_broken_after_the_punctuation() -> None:
    cues = make_cues([spoken(LONG)])
    assert [" ".join(cue.lines) for cue in cues] == [
        "He hoped there would be stew for dinner, turnips and carrots and bruised potatoes",
        "and fat mutton pieces to be ladled out in thick peppered flour-fattened sauce.",
        "Stuff it into you, his belly counselled him.",
    ]


def test_partials_and_empty_captions_make_no_cue() -> None:
    partial = caption_of([Word("no", 0, 100, 0.5)], is_final=False)
    blank = caption_of([Word(" \n", 0, 100, 0.5, is_final=True)])
    assert make_cues([partial, caption_of([]), blank]) == []


def test_a_cue_comes_out_as_soon_as_the_next_run_is_set() -> None:
    maker = CueMaker()
    assert maker.add(spoken("One.", 0)) == []
    assert maker.add(spoken("Two.", 5000)) == []
    assert [cue.lines for cue in maker.add(spoken("Three.", 9000))] == [("One.",)]
    assert [cue.lines for cue in maker.finish()] == [("Two.",), ("Three.",)]
    assert maker.finish() == []


def test_a_cue_gives_way_to_the_next_and_no_blank_flickers_between() -> None:
    first, second = make_cues([spoken("One two three.", 0), spoken("Four.", 1400)])
    assert second.start_ms == 1400
    assert first.end_ms == 1400 - 83


def test_a_cue_waits_a_little_so_that_the_one_before_can_be_read() -> None:
    first, second = make_cues([spoken("No.", 0, speaker="a"), spoken("Yes.", 500, speaker="b")])
    assert first.end_ms - first.start_ms == MIN_CUE_MS
    assert second.start_ms == 916


def test_words_before_zero_and_running_back_still_give_rising_cues() -> None:
    cues = make_cues([spoken("One.", 5000), spoken("Two.", 100, speaker="x"), spoken("Three.", 0)])
    assert [cue.lines[0] for cue in cues] == ["One.", "Two.", "Three."]
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(cues))


def test_captions_without_a_pause_between_them_flow_into_one_cue() -> None:
    cues = make_cues([spoken("He could wait", 0), spoken("no longer.", 900)])
    assert [cue.lines for cue in cues] == [("He could wait no longer.",)]


def test_a_change_of_language_or_speaker_begins_a_cue() -> None:
    cues = make_cues(
        [
            spoken("Good day.", 0, speaker="Ann"),
            spoken("Guten Tag.", 700, language="de", speaker="Ann"),
            spoken("Danke.", 1400, language="de", speaker="Bob"),
        ]
    )
    assert [(cue.language, cue.speaker, cue.is_new_speaker) for cue in cues] == [
        ("en", "Ann", True),
        ("de", "Ann", False),
        ("de", "Bob", True),
    ]


def test_a_long_pause_inside_a_caption_breaks_the_cue() -> None:
    words = [
        Word("before", 0, 400, 0.9, is_final=True),
        Word("after", 4000, 4400, 0.9, is_final=True),
    ]
    assert [cue.lines for cue in make_cues([caption_of(words)])] == [("before",), ("after",)]


def test_a_pause_is_a_better_place_to_break_than_amid_a_phrase() -> None:
    words = [
        *spoken("It was getting late and nobody in the house", 0).words,
        *spoken("had thought of turning on the lamp in the hall", 3_400).words,
        *spoken("or of closing the shutters", 6_600).words,
    ]
    assert [" ".join(cue.lines) for cue in make_cues([caption_of(words)])] == [
        "It was getting late and nobody in the house",
        "had thought of turning on the lamp in the hall or of closing the shutters",
    ]


def test_the_end_of_a_sentence_is_not_left_over_for_the_next_cue() -> None:
    text = (
        "And so my fellow Americans ask not what your country can do for you. "
        "Ask what you can do for your country."
    )
    assert [" ".join(cue.lines) for cue in make_cues([spoken(text, ms_a_word=560)])] == [
        "And so my fellow Americans ask not",
        "what your country can do for you.",
        "Ask what you can do for your country.",
    ]


def test_lines_leave_room_for_the_speaker() -> None:
    cues = make_cues([spoken(LONG, speaker="A very long name")])
    assert speaker_label("A very long name") == "A very lo…: "
    assert display_columns(speaker_label("A very long name") + cues[0].lines[0]) <= 42


def test_no_speaker_has_no_label() -> None:
    assert speaker_label(None) == ""
    assert speaker_label("\n") == ""


def test_chinese_is_set_in_sixteen_full_width_characters() -> None:
    text = "今天天气很好，我们一起去公园散步吧。然后我们去吃饭，好不好？我觉得可以。"
    words = [
        Word(c, i * 200, i * 200 + 200, 0.9, is_final=True, space_before=False)
        for i, c in enumerate(text)
    ]
    cues = make_cues([caption_of(words, language="zh")])
    lines = [line for cue in cues for line in cue.lines]
    assert all(display_columns(line) <= 32 for line in lines)
    assert not any(line[0] in "，。？" for line in lines)
    assert "".join(lines) == text


def test_a_mark_sent_as_its_own_word_stays_with_its_letter() -> None:
    words = [
        Word("e", 0, 100, 0.9, is_final=True),
        Word("\u0301", 100, 200, 0.9, is_final=True, space_before=False),
    ]
    assert make_cues([caption_of(words)])[0].lines == ("e\u0301",)


def test_speech_without_a_pause_comes_out_before_it_ends() -> None:
    maker = CueMaker()
    settled = []
    texts = []
    for i in range(60):
        text = " ".join(f"w{i}x{k}" for k in range(10))
        texts.append(text)
        settled += maker.add(spoken(text, i * 3000))
    assert len(settled) > 20
    assert text_of(settled + maker.finish()) == "".join(texts).replace(" ", "")


def test_cues_are_settled_alike_whenever_the_captions_come() -> None:
    captions = [spoken(LONG, i * 20_000) for i in range(5)]
    maker = CueMaker()
    one_by_one = [cue for caption in captions for cue in maker.add(caption)] + maker.finish()
    assert one_by_one == make_cues(captions)


WORD_TEXTS = st.one_of(
    st.text(min_size=1, max_size=12),
    st.text("日本語。、「」한국어", min_size=1, max_size=60),
    st.sampled_from(["the", "end.", "שָׁלוֹם", "👩‍👩‍👧", "🇩🇪", "e\u0301", "-->", "x" * 100]),
)


@st.composite
def caption_lists(draw: st.DrawFn) -> list[Caption]:
    captions = []
    at_ms = 0
    for _ in range(draw(st.integers(0, 6))):
        words = []
        for text in draw(st.lists(WORD_TEXTS, max_size=12)):
            at_ms += draw(st.sampled_from([0, 10, 300, 2000]))
            end_ms = at_ms + draw(st.sampled_from([0, 200, 9000]))
            words.append(
                Word(text, at_ms, end_ms, 0.5, is_final=True, space_before=draw(st.booleans()))
            )
        language = draw(st.sampled_from(["en", "ja", "zh", None]))
        speaker = draw(st.sampled_from([None, "Ann", "客服客服客服客服"]))
        captions.append(caption_of(words, language=language, speaker=speaker))
    return captions


@settings(max_examples=100, deadline=None)
@given(caption_lists())
def test_no_text_is_lost_and_every_cue_can_be_shown(captions: list[Caption]) -> None:
    cues = make_cues(captions)
    said = "".join(clean_text(word.text) for caption in captions for word in caption.words)
    assert text_of(cues) == said.replace(" ", "")
    for cue in cues:
        label = speaker_label(cue.speaker) if cue.is_new_speaker else ""
        lines = [label + cue.lines[0], *cue.lines[1:]]
        assert 1 <= len(lines) <= 2
        assert all(display_columns(line) <= columns_of_language(cue.language) for line in lines)
        assert 0 <= cue.start_ms < cue.end_ms <= cue.start_ms + MAX_CUE_MS
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(cues))


@pytest.mark.parametrize("rate_ms", [60, 250, 400])
def test_cues_do_not_run_away_from_the_speech(rate_ms: int) -> None:
    cues = make_cues([spoken(LONG, i * 60_000, ms_a_word=rate_ms) for i in range(20)])
    first_words = {i * 60_000 for i in range(20)}
    starts = {cue.start_ms for cue in cues}
    assert first_words <= starts
