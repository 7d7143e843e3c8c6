"""Downloads: independent parsers read them, and no word is lost, moved or taken for markup."""

from __future__ import annotations

from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import srt
import webvtt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

WRITE = """async (captions) => {
  const { cuesOf, toSrt, toText, toVtt } = await import("./js/subtitles.js");
  return { cues: cuesOf(captions), srt: toSrt(captions), vtt: toVtt(captions),
           txt: toText(captions) };
}"""


def captions_of(
    texts: list[list[str]], step_ms: int = 400, speaker: str | None = None, language: str = "en"
) -> list[dict[str, Any]]:
    captions = []
    at_ms = 0
    for n, text in enumerate(texts):
        words = []
        for word in text:
            end_ms = at_ms + step_ms * 3 // 4
            words.append({"text": word, "start_ms": at_ms, "end_ms": end_ms, "space_before": True})
            at_ms += step_ms
        start_ms = words[0]["start_ms"] if words else at_ms
        caption = {"key": f"{n}", "start_ms": start_ms, "words": words, "speaker": speaker}
        captions.append({**caption, "language": language})
    return captions


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(
        st.lists(st.text("ab—é日本.?", min_size=1, max_size=60), min_size=1, max_size=40),
        max_size=6,
    ),
    step_ms=st.integers(0, 3000),
)
async def test_both_kinds_parse_to_the_same_words_without_overlap(
    blank_page: Page, texts: list[list[str]], step_ms: int
) -> None:
    written = await blank_page.evaluate(WRITE, captions_of(texts, step_ms))
    spoken = "".join("".join(text) for text in texts)
    cues = list(srt.parse(written["srt"]))
    assert [cue.index for cue in cues] == list(range(1, len(cues) + 1))
    assert "".join(cue.content for cue in cues).replace(" ", "").replace("\n", "") == spoken
    assert all(cue.start < cue.end for cue in cues)
    assert all(a.end <= b.start for a, b in pairwise(cues))
    assert all(len(line) <= 42 for cue in cues for line in cue.content.splitlines())
    captions = webvtt.from_buffer(StringIO(written["vtt"])).captions
    assert "".join(c.text for c in captions).replace(" ", "").replace("\n", "") == spoken
    assert [(c.start_in_seconds, c.end_in_seconds) for c in captions] == [
        (cue.start.total_seconds() // 1, cue.end.total_seconds() // 1) for cue in cues
    ]


async def test_times_are_those_of_the_words(blank_page: Page) -> None:
    captions = captions_of([["One"], ["two", "three."]], step_ms=4_000_000)
    written = await blank_page.evaluate(WRITE, captions)
    assert written["srt"].startswith("1\n00:00:00,000 --> 00:50:00,000\nOne\n\n2\n01:06:40,000 -->")
    assert written["vtt"].startswith("WEBVTT\n\n00:00:00.000 --> 00:50:00.000\nOne\n\n01:06:40.000")


async def test_a_long_segment_is_cut_after_sentences_into_two_short_lines(blank_page: Page) -> None:
    story = "The first sentence is not very long at all today. The second one runs on for quite "
    text = (story + "some time before it comes to its end.").split()
    cues = (await blank_page.evaluate(WRITE, captions_of([text], step_ms=200)))["cues"]
    assert cues[0]["lines"] == ["The first sentence is not very long at all", "today."]
    assert all(len(cue["lines"]) <= 2 for cue in cues)
    assert all(cue["endMs"] - cue["startMs"] <= 7000 for cue in cues)


async def test_wide_characters_take_two_columns(blank_page: Page) -> None:
    captions = captions_of([["字" * 30]], language="ja")
    assert (await blank_page.evaluate(WRITE, captions))["cues"][0]["lines"] == [
        "字" * 13,
        "字" * 13,
        "字" * 4,
    ]
    family = "👨‍👩‍👧"
    lines = (await blank_page.evaluate(WRITE, captions_of([[family * 30]])))["cues"][0]["lines"]
    assert lines == [family * 21, family * 9]


async def test_a_short_word_stays_long_enough_to_read(blank_page: Page) -> None:
    captions = captions_of([["Yes."], ["No."]], step_ms=100)
    captions[1]["words"][0]["start_ms"] = captions[1]["start_ms"] = 5000
    captions[1]["words"][0]["end_ms"] = 5050
    cues = (await blank_page.evaluate(WRITE, captions))["cues"]
    assert [(cue["startMs"], cue["endMs"]) for cue in cues] == [(0, 833), (5000, 5833)]


async def test_what_looks_like_markup_is_text(blank_page: Page) -> None:
    text = ["<i>5", "<", "6</i>", "&", "-->", "1\n\n2"]
    written = await blank_page.evaluate(WRITE, captions_of([text], speaker="A <b>"))
    assert "-->\n" not in written["srt"].split("\n", 2)[2]
    [cue] = srt.parse(written["srt"])
    assert cue.content == "A <b>: <i>5 < 6</i> & → 1 2"
    body = written["vtt"].split("\n")[3]
    assert body == "<v A &lt;b&gt;>&lt;i&gt;5 &lt; 6&lt;/i&gt; &amp; --&gt; 1 2"
    assert len(webvtt.from_buffer(StringIO(written["vtt"])).captions) == 1
    assert written["txt"] == "A <b>: <i>5 < 6</i> & --> 1 2\n"


async def test_segments_of_two_speakers_come_in_the_order_of_time(blank_page: Page) -> None:
    late, early = captions_of([["late"]])[0], captions_of([["early"]])[0]
    late["start_ms"] = late["words"][0]["start_ms"] = 2000
    late["words"][0]["end_ms"] = 2500
    written = await blank_page.evaluate(WRITE, [late, early])
    assert [cue.content for cue in srt.parse(written["srt"])] == ["early", "late"]


async def test_an_empty_transcript_is_an_empty_file(blank_page: Page) -> None:
    written = await blank_page.evaluate(WRITE, [])
    assert (written["srt"], written["vtt"], written["txt"]) == ("", "WEBVTT\n", "")


async def test_what_is_known_of_a_call_is_in_the_downloads_and_is_no_caption(
    blank_page: Page,
) -> None:
    about = {"from": "+1 555", "caller": "Zoë\n\nNOTE --> <b>"}
    write = """async ([captions, about]) => {
      const { toText, toVtt } = await import("./js/subtitles.js");
      return [toVtt(captions, about), toText(captions, about), toVtt([], {}), toText([], {})];
    }"""
    vtt, text, *empty = await blank_page.evaluate(write, [captions_of([["good", "day"]]), about])
    known = "from: +1 555\ncaller: Zoë NOTE → <b>\n"
    assert vtt.startswith(f"WEBVTT\n\nNOTE\n{known}\n00:")
    assert [cue.text for cue in webvtt.from_buffer(StringIO(vtt)).captions] == ["good day"]
    assert text == f"{known}\ngood day\n"
    assert empty == ["WEBVTT\n", ""]
