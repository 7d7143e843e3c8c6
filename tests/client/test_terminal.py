from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from audiokv.client.cache_line import NOTHING_BOUND, CacheLine
from audiokv.client.terminal import Line, LiveView, PlainView, open_view, roll_up
from audiokv.streaming.captions import Caption, Notice, Word, join_words
from audiokv.streaming.line_breaking import display_columns
from tests.client.conftest import COUNTERS


def words_of(committed: str, tentative: str = "") -> tuple[Word, ...]:
    return tuple(
        Word(text, 0, 0, 0.9, is_final=is_final)
        for words, is_final in ((committed, True), (tentative, False))
        for text in words.split()
    )


def caption_of(
    words: tuple[Word, ...], *, is_final: bool = False, speaker: str | None = None
) -> Caption:
    return Caption(1, 0, 0, is_final, 0, 0, join_words(words), "en", speaker, words)


def test_tentative_words_are_told_apart() -> None:
    assert roll_up(words_of("he hoped", "there would"), 40) == [Line("he hoped", " there would")]


def test_lines_are_filled_by_columns_not_characters() -> None:
    words = (Word("日本語", 0, 0, 0.9, is_final=True), Word("です", 0, 0, 0.9, True, False))  # noqa: FBT003  is_final, space_before
    assert roll_up(words, 8) == [Line("日本語", ""), Line("です", "")]


def test_a_terminal_is_not_led_astray() -> None:
    assert roll_up((Word("\x1b[2Jx", 0, 0, 0.9), Word("\x07", 0, 0, 0.9)), 40) == [Line("", "[2Jx")]


@settings(deadline=None)
@given(st.lists(st.text("ab日 ", min_size=1, max_size=9), max_size=30), st.integers(0, 30))
def test_full_lines_never_change_as_words_are_added(texts: list[str], n_first: int) -> None:
    words = tuple(Word(text, 0, 0, 0.9, is_final=True) for text in texts)
    before, after = roll_up(words[:n_first], 10), roll_up(words, 10)
    assert after[: max(0, len(before) - 1)] == before[:-1]
    assert all(display_columns(line.committed + line.tentative) <= 10 for line in after)


class FakeTime:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Screen:
    """A live view on a pretended terminal of forty columns."""

    def __init__(self, cache_line: CacheLine | None = None) -> None:
        self.out = io.StringIO()
        self.time = FakeTime()
        console = Console(
            file=self.out,
            force_terminal=True,
            width=40,
            height=10,
            color_system="standard",
            highlight=False,
            legacy_windows=False,
        )
        self.view = LiveView(console, self.time, cache_line)

    def drawn(self) -> str:
        text = self.out.getvalue()
        self.out.seek(0)
        self.out.truncate()
        return text


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_the_live_view_is_always_two_lines_high(screen: Screen) -> None:
    assert screen.drawn().count("\n") == 2 - 1
    for text in ("short", "so long that it takes two lines on this narrow screen", "x " * 90):
        screen.time.now_s += 1
        screen.view.caption(caption_of(words_of(text)))
        drawn = screen.drawn()
        assert drawn.count("\n") == 1
        assert drawn.count("\x1b[1A") == 1


def test_only_the_last_two_lines_are_shown(screen: Screen) -> None:
    screen.time.now_s += 1
    screen.drawn()
    screen.view.caption(caption_of(words_of("first " + "middle " * 14 + "last")))
    drawn = screen.drawn()
    assert "last" in drawn
    assert "first" not in drawn


def test_tentative_text_is_dim_and_italic(screen: Screen) -> None:
    screen.time.now_s += 1
    screen.drawn()
    screen.view.caption(caption_of(words_of("sure", "maybe")))
    assert "sure\x1b[2;3m maybe\x1b[0m" in screen.drawn()


def test_it_is_redrawn_at_most_ten_times_a_second(screen: Screen) -> None:
    screen.time.now_s += 1
    screen.drawn()
    n_drawn = 0
    for i in range(100):
        screen.time.now_s += 0.01
        screen.view.caption(caption_of(words_of(f"word{i}")))
        n_drawn += bool(screen.drawn())
    assert n_drawn <= 11


def test_a_finished_segment_moves_up_and_stays(screen: Screen) -> None:
    screen.time.now_s += 1
    screen.view.caption(caption_of(words_of("It is", "done.")))
    screen.drawn()
    screen.view.caption(caption_of(words_of("It is done."), is_final=True, speaker="Ann"))
    drawn = screen.drawn()
    assert drawn.count("It is") == drawn.count("Ann: It is done.\n") == 1
    screen.view.caption(caption_of((), is_final=True))
    assert "Ann" not in screen.drawn()


def test_notices_and_the_bar_leave_the_text_alone(screen: Screen) -> None:
    screen.view.progress(10)
    screen.view.begin("file\x1b[1m.wav", 60_000)
    screen.view.notice(Notice("code", "The server vanished.", "Wait."))
    screen.time.now_s += 1
    screen.view.progress(30_000)
    drawn = screen.drawn()
    assert "The server vanished. Wait." in drawn
    assert "0:30 / 1:00" in drawn
    assert "50%" in drawn
    screen.view.begin("next.wav", None)
    screen.view.close()
    assert "next.wav" in screen.drawn()


def test_a_pipe_gets_one_line_a_segment() -> None:
    out, errors = io.StringIO(), io.StringIO()
    view = open_view(out, errors)
    assert isinstance(view, PlainView)
    view.begin("a.wav", 1_000)
    view.caption(caption_of(words_of("", "maybe")))
    view.caption(caption_of(words_of("He hoped."), is_final=True))
    view.caption(caption_of((), is_final=True))
    view.caption(caption_of(words_of("Yes."), is_final=True, speaker="Ann"))
    view.notice(Notice("x", "The server vanished.", "Wait."))
    view.progress(500)
    view.close()
    assert out.getvalue() == "He hoped.\nAnn: Yes.\n"
    assert errors.getvalue() == "The server vanished. Wait.\n"


def test_the_bar_goes_to_the_error_output_when_that_is_a_terminal() -> None:
    out, errors = io.StringIO(), io.StringIO()
    view = PlainView(out, Console(file=errors, force_terminal=True, width=80))
    for name in ("a.wav", "b.wav"):
        view.begin(name, 2_000)
        view.progress(1_000)
    view.close()
    assert "a.wav" in errors.getvalue()
    assert "0:01 / 0:02" in errors.getvalue()
    assert out.getvalue() == ""


def test_a_terminal_gets_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    view = open_view(out, io.StringIO(), CacheLine())
    assert isinstance(view, LiveView)
    view.cache(None)
    view.notice(Notice("x", "The server vanished."))
    view.close()
    assert NOTHING_BOUND in out.getvalue()


def test_the_line_about_the_cache_has_its_place_from_the_start() -> None:
    screen = Screen(CacheLine())
    assert screen.drawn().count("\n") == 3 - 1
    for counters, shown in (
        (None, NOTHING_BOUND[:39]),
        (COUNTERS, "cache 5/6 slots of 9 seen, 5.1 kB"),
    ):
        screen.time.now_s += 1
        screen.view.cache(counters)
        drawn = screen.drawn()
        assert shown in drawn
        assert drawn.count("\n") == 3 - 1
    screen.time.now_s += 1
    screen.view.caption(caption_of(words_of("He hoped.")))
    assert "cache 5/6" in screen.drawn()


def test_nobody_is_told_about_the_cache_unasked(screen: Screen) -> None:
    screen.time.now_s += 1
    screen.drawn()
    screen.view.cache(COUNTERS)
    assert screen.drawn() == ""
    errors = io.StringIO()
    view = PlainView(io.StringIO(), Console(file=errors))
    view.cache(COUNTERS)
    view.close()
    assert errors.getvalue() == ""


def test_a_pipe_gets_one_line_about_the_cache_of_each_stream() -> None:
    out, errors = io.StringIO(), io.StringIO()
    view = open_view(out, errors, CacheLine())
    for name in ("a.wav", "b.wav"):
        view.begin(name, 1_000)
        view.cache(None)
        view.cache(COUNTERS)
    view.close()
    view.close()
    line = "cache 5/6 slots of 9 seen, 5.1 kB · 3 base, 1 buffer, 1 reserve · left 4: 3 ahead, "
    line += "1 expired · they were 1 committed, 2 silence\n"
    assert errors.getvalue() == line * 2
    assert out.getvalue() == ""
