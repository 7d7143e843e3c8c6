from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.captions import Notice, SpeechChange, Word
from audiokv.streaming.session_options import SessionOptions
from audiokv.streaming.stabilizer import CommitOptions
from tests.streaming.session_script import (
    LOUD,
    Script,
    audio,
    captions,
    drain,
    finals,
    run,
    session_of,
    spoken,
)

if TYPE_CHECKING:
    from audiokv.streaming.captions import Event


def test_speech_becomes_partials_and_one_final_between_speech_events() -> None:
    script = Script(spoken(5, from_ms=500))
    events = run(script, audio((0, 500), (LOUD, 2_000), (0, 1_500)))
    assert isinstance(events[0], SpeechChange)
    assert events[0].is_on
    assert abs(events[0].at_ms - 500) <= 32
    assert isinstance(events[-1], SpeechChange)
    assert not events[-1].is_on
    assert abs(events[-1].at_ms - 2_500) <= 32
    said = captions(events)
    assert [c.seq for c in said] == list(range(1, len(said) + 1))
    assert [c.revision for c in said] == list(range(len(said)))
    assert {c.segment for c in said} == {0}
    assert [c.is_final for c in said] == [False] * (len(said) - 1) + [True]
    assert said[-1].text == "w0 w1 w2 w3 w4"
    assert all(w.is_final for w in said[-1].words)
    assert said[-1].language == "en"
    # Something was to be read long before the end, and something was settled.
    assert said[0].end_ms < 1_500
    assert any(w.is_final for c in said[:-1] for w in c.words)


def test_committed_words_never_change() -> None:
    events = run(Script(spoken(20)), audio((LOUD, 9_000), (0, 1_000)))
    committed: tuple[Word, ...] = ()
    for caption in captions(events):
        now = tuple(w for w in caption.words if w.is_final)
        assert now[: len(committed)] == committed
        assert caption.words[: len(now)] == now
        committed = now


def test_silence_costs_no_step_and_says_nothing() -> None:
    script = Script(spoken(3))
    assert run(script, audio((0, 5_000))) == []
    assert script.heard == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 30_000), max_size=20), st.lists(st.integers(0, 3), max_size=20))
def test_any_byte_split_and_any_delay_give_the_same_events(
    lengths: list[int], n_prepares: list[int]
) -> None:
    pcm = audio((0, 300), (LOUD, 1_500), (0, 800), (LOUD, 900), (0, 700))
    table = [*spoken(4, from_ms=300), *[("late", 2_700, 3_000)]]
    whole = run(Script(table), pcm)
    script = Script(table)
    session = session_of(script)
    events: list[Event] = []
    done = 0
    for i, length in enumerate(lengths):
        session.push(pcm[done : done + length])
        done = min(done + length, len(pcm))
        if i < len(n_prepares) and n_prepares[i]:
            events += drain(session, script)
    session.push(pcm[done:])
    session.stop()
    events += drain(session, script)
    assert events == whole


def test_steps_fall_on_a_grid_of_the_sample_clock() -> None:
    script = Script([])
    run(script, audio((0, 200), (LOUD, 2_000), (0, 600)), SessionOptions(step_ms=250))
    ends = [end for _, end in script.heard]
    assert len(ends) > 5
    assert all(b - a == 250 for a, b in pairwise(ends))


def test_a_late_session_takes_bigger_steps_and_loses_nothing() -> None:
    script = Script(spoken(9))
    session = session_of(script, SessionOptions(max_lag_ms=1_000))
    session.push(audio((LOUD, 4_000), (0, 1_000)))
    session.lag_ms = 3_200
    session.stop()
    events = drain(session, script)
    ends = [end for _, end in script.heard]
    assert ends[1] - ends[0] == 800
    assert finals(events) == [" ".join(f"w{i}" for i in range(9))]


def test_a_pause_ends_the_segment_from_what_was_heard_after_the_voice() -> None:
    script = Script([("one", 0, 900)])
    run(script, audio((LOUD, 1_000), (0, 2_000)), SessionOptions(pause_ms=450, settle_ms=150))
    # Steps 200 ms apart always leave one between 150 and 450 ms of silence: none was added.
    ends = [end for _, end in script.heard]
    assert all(b - a == 200 for a, b in pairwise(ends))
    assert 1_150 <= ends[-1] <= 1_482


def test_a_pause_too_short_for_a_step_gets_one() -> None:
    script = Script([("one", 0, 1_000)])
    options = SessionOptions(pause_ms=200, settle_ms=180, step_ms=900)
    events = run(script, audio((LOUD, 1_000), (0, 2_000)), options)
    assert finals(events) == ["one"]
    assert script.heard[-1][1] >= 1_180


def test_the_pre_roll_is_recognised_too() -> None:
    script = Script([])
    run(script, audio((0, 1_000), (LOUD, 1_000), (0, 600)), SessionOptions(pre_roll_ms=300))
    assert len(script.opened) == 1
    assert abs(script.opened[0] - 700) <= 32


def test_a_short_pause_keeps_the_window_and_its_gap() -> None:
    script = Script([("one", 0, 900), ("two", 2_000, 2_600)])
    events = run(
        script,
        audio((LOUD, 1_000), (0, 900), (LOUD, 1_000), (0, 700)),
        SessionOptions(context_gap_ms=2_000),
    )
    assert finals(events) == ["one", "two"]
    assert [c.segment for c in captions(events) if c.is_final] == [0, 1]
    assert len(script.opened) == 1
    assert len(script.segments) == 2
    assert script.end_ms - script.start_ms == script.heard[-1][1] - script.opened[0]


@pytest.mark.parametrize(
    ("gap_ms", "options"),
    [
        (2_500, SessionOptions(context_gap_ms=2_000)),
        (900, SessionOptions(context_gap_ms=2_000, context_ms=1_500)),
        (900, SessionOptions(context_gap_ms=0)),
    ],
)
def test_a_long_pause_or_a_long_window_opens_a_fresh_one(
    gap_ms: int, options: SessionOptions
) -> None:
    script = Script([])
    run(script, audio((LOUD, 1_000), (0, gap_ms), (LOUD, 1_000), (0, 700)), options)
    assert len(script.opened) == 2
    # Never twice the same audio.
    assert script.opened[1] >= 1_000


@pytest.mark.parametrize(
    ("stated_ms", "asked_ms", "n_windows"), [(2_000, None, 1), (2_000, 0, 2), (0, 2_000, 1)]
)
def test_the_recogniser_states_which_gap_it_hears_unless_it_is_asked_for(
    stated_ms: int, asked_ms: int | None, n_windows: int
) -> None:
    script = Script([])
    options = SessionOptions(context_gap_ms=asked_ms)
    session = session_of(script, options, context_gap_ms=stated_ms)
    session.push(audio((LOUD, 1_000), (0, 900), (LOUD, 1_000), (0, 700)))
    session.stop()
    drain(session, script)
    assert len(script.opened) == n_windows


@pytest.mark.parametrize("gap_ms", [1_500, 2_500])
def test_before_a_fresh_window_so_much_silence_is_heard_that_was_not_heard(gap_ms: int) -> None:
    script = Script([])
    options = SessionOptions(context_gap_ms=1_800, context_ms=500)
    run(script, audio((0, 3_000), (LOUD, 1_000), (0, gap_ms), (LOUD, 1_000), (0, 700)), options)
    assert len(script.opened) == 2
    assert abs(script.opened[0] - 1_200) <= 32
    heard_until_ms = next(end for start, end in reversed(script.heard) if start < 4_000)
    assert abs(script.opened[1] - max(heard_until_ms, 4_000 + gap_ms - 1_800)) <= 32


def test_a_long_segment_ends_at_a_committed_word_and_goes_on() -> None:
    script = Script(spoken(20))
    events = run(script, audio((LOUD, 8_000), (0, 1_000)), SessionOptions(max_segment_ms=3_000))
    texts = finals(events)
    assert len(texts) >= 3
    assert " ".join(texts) == " ".join(f"w{i}" for i in range(20))
    assert len(script.opened) == 1
    assert sum(isinstance(e, SpeechChange) for e in events) == 2


def test_a_long_segment_without_a_committed_word_waits_for_one() -> None:
    script = Script(spoken(20), is_settled=False)
    events = run(script, audio((LOUD, 8_000), (0, 1_000)), SessionOptions(max_segment_ms=3_000))
    assert finals(events) == [" ".join(f"w{i}" for i in range(20))]


def test_voice_without_words_restarts_the_window_and_says_so() -> None:
    script = Script([])
    events = run(script, audio((LOUD, 5_000), (0, 1_000)), SessionOptions(blank_ms=2_000))
    notices = [e for e in events if isinstance(e, Notice)]
    assert {n.code for n in notices} == {"no_words"}
    assert len(script.opened) == 1 + len(notices) >= 2
    assert captions(events) == []


def test_a_restarted_window_does_not_hear_committed_words_again() -> None:
    script = Script([("one", 0, 300), ("two", 300, 600), ("three", 600, 900)])
    options = SessionOptions(
        blank_ms=1_000, commit=CommitOptions(guard_ms=0, n_agreeing=1, max_age_ms=0)
    )
    run(script, audio((LOUD, 4_000), (0, 1_000)), options)
    assert all(at_ms >= 600 for at_ms in script.opened[1:])


def test_an_unsure_language_is_neither_shown_nor_committed_but_never_lost() -> None:
    script = Script(spoken(4), confidence=0.4, is_settled=False)
    events = run(script, audio((LOUD, 2_000), (0, 1_000)))
    assert [c.is_final for c in captions(events)] == [True]
    assert finals(events) == ["w0 w1 w2 w3"]


def test_another_language_replaces_what_is_shown_at_once() -> None:
    script = Script([("harina", 0, 300)], is_settled=False)
    session = session_of(script)
    session.push(audio((LOUD, 800)))
    assert captions(drain(session, script))[-1].text == "harina"
    script.language, script.timetable = "es", [("arenas", 0, 300)]
    session.push(audio((LOUD, 200)))
    caption = captions(drain(session, script))[-1]
    assert (caption.text, caption.language) == ("arenas", "es")


def test_a_partial_that_came_to_nothing_is_taken_back() -> None:
    script = Script([("ghost", 0, 300)])
    session = session_of(script)
    session.push(audio((LOUD, 1_000)))
    events = drain(session, script)
    assert captions(events)[-1].text == "ghost"
    script.timetable = []
    session.push(audio((0, 1_000)))
    session.stop()
    events = drain(session, script)
    assert captions(events)[-1].is_final
    assert captions(events)[-1].text == ""
