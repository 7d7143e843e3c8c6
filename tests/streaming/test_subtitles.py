from __future__ import annotations

import html
import io
import re
from itertools import pairwise

import pytest
import srt
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.captions import Caption, Word, join_words
from audiokv.streaming.line_breaking import clean_text
from audiokv.streaming.messages import decode_server
from audiokv.streaming.subtitles import (
    CaptionFormat,
    JsonLines,
    PlainText,
    SubRip,
    WebVtt,
    render,
)


def caption_of(
    text: str,
    start_ms: int = 0,
    *,
    language: str | None = "en",
    speaker: str | None = None,
    is_final: bool = True,
) -> Caption:
    words = tuple(
        Word(word, start_ms + i * 300, start_ms + i * 300 + 280, 0.9, is_final=is_final)
        for i, word in enumerate(text.split(" ") if text else [])
    )
    end_ms = words[-1].end_ms if words else start_ms
    return Caption(1, 0, 0, is_final, start_ms, end_ms, join_words(words), language, speaker, words)


TALK = [
    caption_of("He could wait no longer.", 0, speaker="Ann"),
    caption_of("partial", 3000, is_final=False),
    caption_of("", 3000),
    caption_of("Ja & <nein> -->", 3_600_000, language="de", speaker="Ann"),
    caption_of("Bye.", 7_325_042, speaker="Bob & <Co>"),
]


def test_subrip_is_numbered_zero_based_and_names_new_speakers() -> None:
    assert render(TALK, SubRip()) == (
        "1\n00:00:00,000 --> 00:00:01,480\nAnn: He could wait no longer.\n\n"
        "2\n01:00:00,000 --> 01:00:01,180\nJa & <nein> -->\n\n"
        "3\n02:02:05,042 --> 02:02:05,875\nBob & <Co>: Bye.\n\n"
    )


def test_webvtt_escapes_text_and_marks_voices_and_languages() -> None:
    assert render(TALK, WebVtt()) == (
        "WEBVTT Language: en\n\n"
        "00:00:00.000 --> 00:00:01.480\n<v Ann>He could wait no longer.\n\n"
        "01:00:00.000 --> 01:00:01.180\n<v Ann><lang de>Ja &amp; &lt;nein&gt; --&gt;</lang>\n\n"
        "02:02:05.042 --> 02:02:05.875\n<v Bob &amp; &lt;Co&gt;>Bye.\n\n"
    )


def test_webvtt_of_a_known_language_marks_the_others() -> None:
    text = render([caption_of("Hello.")], WebVtt("de"))
    assert text.startswith("WEBVTT Language: de\n\n")
    assert "<lang en>Hello.</lang>" in text


def test_webvtt_without_a_language_has_a_bare_header() -> None:
    text = render([caption_of("Hello.", language=None)], WebVtt())
    assert text.startswith("WEBVTT\n\n00:00:00.000 -->")


def test_a_hostile_language_cannot_break_the_header() -> None:
    assert render([], WebVtt("en\n--> x")).splitlines()[0] == "WEBVTT Language: en  x"


def test_a_stream_without_words_gives_files_that_parse() -> None:
    assert render([], SubRip()) == ""
    assert render([], WebVtt()) == "WEBVTT\n\n"
    assert len(webvtt.from_buffer(io.StringIO(render([], WebVtt())))) == 0


def test_plain_text_has_a_line_a_segment() -> None:
    assert render(TALK, PlainText()) == (
        "Ann: He could wait no longer.\nJa & <nein> -->\nBob & <Co>: Bye.\n"
    )


def test_json_lines_are_the_final_captions_as_on_the_wire() -> None:
    lines = render(TALK, JsonLines()).splitlines()
    assert [decode_server(line) for line in lines] == [TALK[0], TALK[3], TALK[4]]


@pytest.mark.parametrize("make", [SubRip, WebVtt, PlainText, JsonLines])
def test_the_text_is_the_same_however_it_is_asked_for(make: type[CaptionFormat]) -> None:
    bit_by_bit = make()
    pieces = [bit_by_bit.add(caption) for caption in TALK]
    assert "".join(pieces) + bit_by_bit.finish() == render(TALK, make())


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.sampled_from(
        [
            "الكتاب،",
            "שָׁלוֹם",
            "👩‍👩‍👧",
            "🇩🇪",
            "e\u0301",
            "นี่คือ",
            "日本語です。",
            "&amp;",
            "<b>",
            "-->",
            "1",
            "x" * 90,
        ]
    ),
)


@st.composite
def talks(draw: st.DrawFn) -> list[Caption]:
    captions = []
    at_ms = 0
    for segment in range(draw(st.integers(0, 5))):
        words = []
        for text in draw(st.lists(TEXTS, max_size=8)):
            at_ms += draw(st.integers(0, 900))
            words.append(
                Word(
                    text,
                    at_ms,
                    at_ms + draw(st.integers(0, 600)),
                    0.5,
                    is_final=True,
                    space_before=draw(st.booleans()),
                )
            )
        start_ms, end_ms = (words[0].start_ms, words[-1].end_ms) if words else (at_ms, at_ms)
        language = draw(st.sampled_from(["en", "ar", "th", "ja", None]))
        captions.append(
            Caption(
                seq=segment + 1,
                segment=segment,
                revision=0,
                is_final=True,
                start_ms=start_ms,
                end_ms=end_ms,
                text=join_words(words),
                language=language,
                speaker=None,
                words=tuple(words),
            )
        )
    return captions


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def said(captions: list[Caption]) -> str:
    return squeezed(
        "".join(clean_text(word.text) for caption in captions for word in caption.words)
    )


@settings(max_examples=60, deadline=None)
@given(talks())
def test_an_independent_parser_reads_the_subrip_and_no_word_is_missing(
    captions: list[Caption],
) -> None:
    text = render(captions, SubRip())
    cues = list(srt.parse(text))
    assert squeezed("".join(cue.content for cue in cues)) == said(captions)
    assert [cue.index for cue in cues] == list(range(1, len(cues) + 1))
    assert all(cue.start < cue.end for cue in cues)
    assert all(a.end <= b.start for a, b in pairwise(cues))
    assert text.encode().decode("utf-8-sig") == text


@settings(max_examples=60, deadline=None)
@given(talks())
def test_an_independent_parser_reads_the_webvtt_and_no_word_is_missing(
    captions: list[Caption],
) -> None:
    parsed = webvtt.from_buffer(io.StringIO(render(captions, WebVtt()), newline="\n"))
    cues = [parsed[i] for i in range(len(parsed))]
    shown = "".join(re.sub(r"<[^>]*>", "", cue.raw_text) for cue in cues)
    assert squeezed(html.unescape(shown)) == said(captions)
    assert all(a.end_in_seconds <= b.start_in_seconds for a, b in pairwise(cues))


def test_words_stay_whole_and_in_order() -> None:
    text = "It was the best of times, it was the worst of times, it was the age of wisdom."
    captions = [caption_of(text, i * 30_000) for i in range(3)]
    cues = srt.parse(render(captions, SubRip()))
    assert " ".join(cue.content for cue in cues).split() == (text + " ").split() * 3
