from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.base import Hypothesis, StreamOptions
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption, SpeechChange
from audiokv.streaming.errors import AudioFormatError
from audiokv.streaming.session import Session
from audiokv.streaming.session_options import SessionOptions
from tests.streaming.session_script import (
    COUNTERS,
    LOUD,
    Loudness,
    Script,
    audio,
    captions,
    drain,
    finals,
    info,
    run,
    session_of,
    spoken,
)

if TYPE_CHECKING:
    from audiokv.streaming.captions import Event


def test_finalize_ends_the_segment_where_it_was_asked() -> None:
    script = Script(spoken(10))
    session = session_of(script)
    session.push(audio((LOUD, 1_010)))
    session.finalize()
    session.push(audio((LOUD, 1_000)))
    events = drain(session, script)
    assert finals(events) == ["w0 w1"]
    changes = [(e.is_on, e.at_ms) for e in events if isinstance(e, SpeechChange)]
    assert changes[1:] == [(False, 1_010), (True, 1_010)]  # the voice went on


def test_speech_after_finalize_in_mid_voice_is_not_lost() -> None:
    script = Script(spoken(6))
    session = session_of(script)
    session.push(audio((LOUD, 1_000)))
    session.finalize()
    session.push(audio((LOUD, 1_400), (0, 1_000)))
    session.stop()
    assert finals(drain(session, script)) == ["w0 w1", "w2 w3 w4 w5"]


def test_finalize_in_silence_changes_nothing() -> None:
    session = session_of(Script([]))
    session.push(audio((0, 500)))
    session.finalize()
    assert drain(session, Script([])) == []


def test_counts_what_came_in_and_what_was_decided() -> None:
    script = Script([])
    session = Session(
        fmt=AudioFormat(Encoding.MULAW, 8_000, 1), stream=script, info=info(), detector=Loudness()
    )
    session.push(b"\xff" * 8_000)
    assert session.received_samples == 8_000
    assert session.processed_ms == 0
    session.prepare()
    assert session.received_ms == session.processed_ms
    assert 950 <= session.processed_ms <= 1_000
    assert session.n_segments == 0


def test_broken_samples_are_refused() -> None:
    session = Session(
        fmt=AudioFormat(Encoding.PCM_F32LE, 16_000, 1),
        stream=Script([]),
        info=info(),
        detector=Loudness(),
    )
    with pytest.raises(AudioFormatError):
        session.push(np.full(160, np.nan, dtype="<f4").tobytes())


def test_stopping_twice_is_stopping_once() -> None:
    script = Script(spoken(2))
    session = session_of(script)
    session.push(audio((LOUD, 1_000)) + b"\0")
    session.stop()
    session.stop()
    events = drain(session, script)
    assert finals(events) == ["w0 w1"]
    assert session.n_segments == 1


def test_new_wishes_reach_the_recogniser() -> None:
    script = Script([])
    session = session_of(script)
    session.update(StreamOptions(language="de"))
    session.prepare()
    assert script.options == [StreamOptions(language="de")]


def test_new_wishes_take_effect_behind_the_audio_sent_before_them() -> None:
    script = Script(spoken(8))
    session = session_of(script)
    session.push(audio((LOUD, 1_500)))
    session.update(StreamOptions(language="de"))
    session.push(audio((LOUD, 1_500), (0, 1_000)))
    session.stop()
    events: list[Event] = []
    while not script.options:
        if session.is_step_due:
            events += session.apply(script.decode())
        events += session.advance()
    assert session.processed_ms == 1_500  # everything up to there was heard with the old wishes
    assert script.heard[-1][1] > 1_300
    events += drain(session, script)
    assert finals(events) == [" ".join(f"w{i}" for i in range(8))]


def test_of_wishes_at_one_place_the_last_counts() -> None:
    script = Script([])
    session = session_of(script)
    for prompt in ("a", "b", "c"):
        session.update(StreamOptions(prompt=prompt))
    session.push(audio((0, 100)))
    session.update(StreamOptions(prompt="d"))
    session.prepare()
    assert [wish.prompt for wish in script.options] == ["c", "d"]


def test_a_recogniser_that_does_not_align_commits_by_agreement() -> None:
    script = Script(spoken(3))
    events = run(script, audio((LOUD, 1_500), (0, 1_000)), aligns=False)
    first = next(c for c in captions(events) if any(w.is_final for w in c.words))
    assert not first.is_final
    # Agreement settles a word as soon as it came twice, even the last one.
    assert all(w.is_final for w in first.words)


def test_a_step_that_was_not_asked_for_changes_nothing() -> None:
    session = session_of(Script([]))
    assert session.apply(Hypothesis(())) == []


@pytest.mark.parametrize("lag_ms", [16_000, 30_000, 3_600_000])
def test_a_session_however_late_loses_nothing(lag_ms: int) -> None:
    script = Script(spoken(70))
    session = session_of(script)
    session.push(audio((LOUD, 28_000), (0, 1_000)))
    session.lag_ms = lag_ms
    session.stop()
    said = " ".join(finals(drain(session, script)))
    assert said == " ".join(f"w{i}" for i in range(70))
    ends = [end for _, end in script.heard]
    assert max(b - a for a, b in pairwise(ends)) == 4_000


def test_asking_again_to_finalize_costs_nothing() -> None:
    script = Script(spoken(10))
    session = session_of(script)
    session.push(audio((LOUD, 1_000)))
    for _ in range(1_000):
        session.finalize()
    assert len(session._intake._requests) == 1
    session.push(audio((LOUD, 1_000)))
    assert finals(drain(session, script)) == ["w0 w1"]


def test_what_was_heard_in_the_wrong_language_is_not_made_final() -> None:
    script = Script([("harina", 0, 300)])
    session = session_of(script)
    shown: list[Caption] = []
    while not shown:  # up to a step: nothing is left that was not heard
        session.push(audio((LOUD, 10)))
        shown += captions(drain(session, script))
    assert shown[-1].text == "harina"
    script.language, script.timetable = "es", [("arenas", 0, 300)]
    session.update(StreamOptions(language="es"))
    session.finalize()
    said = captions(drain(session, script))
    assert [(c.text, c.language) for c in said] == [("arenas", "es")]


def test_resting_and_the_cache_are_the_recognisers() -> None:
    script = Script(spoken(1))
    session = session_of(script)
    assert session.cache_counters is None
    session.rest()
    assert script.n_rests == 1
    assert session.cache_counters == COUNTERS


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, LOUD]), st.integers(1, 900), st.booleans()), max_size=12)
)
def test_speech_goes_on_and_off_in_turn_and_never_back_in_time(
    parts: list[tuple[int, int, bool]],
) -> None:
    script = Script([])
    session = session_of(script)
    events: list[Event] = []
    for level, ms, is_line_end in parts:
        session.push(audio((level, ms)))
        if is_line_end:
            session.finalize()
        events += drain(session, script)
    session.stop()
    events += drain(session, script)
    changes = [e for e in events if isinstance(e, SpeechChange)]
    assert [c.is_on for c in changes] == [i % 2 == 0 for i in range(len(changes))]
    assert len(changes) % 2 == 0
    assert all(a.at_ms <= b.at_ms for a, b in pairwise(changes))


@pytest.mark.parametrize(
    ("quiet_ms", "last"),
    [
        # The voice had ended at 1,504 ms, but was still taken to be on at 1,600 ms.
        (100, [(False, 1_600), (True, 1_600), (False, 1_600)]),
        (900, [(False, 1_504)]),
    ],
)
def test_a_segment_begun_in_a_dying_voice_does_not_end_before_it_began(
    quiet_ms: int, last: list[tuple[bool, int]]
) -> None:
    script = Script([])
    session = session_of(script)
    session.push(audio((LOUD, 1_500), (0, quiet_ms)))
    session.finalize()
    session.push(audio((0, 1_000)))
    events = drain(session, script)
    assert [(e.is_on, e.at_ms) for e in events if isinstance(e, SpeechChange)][1:] == last


@pytest.mark.parametrize(
    ("voice_ms", "confidence", "said"),
    [(200, 0.49, []), (200, 0.5, ["yes"]), (600, 0.1, ["yes"])],
)
def test_a_click_with_doubtful_words_says_nothing(
    voice_ms: int, confidence: float, said: list[str]
) -> None:
    script = Script([("yes", 0, 150)], word_confidence=confidence)
    events = run(script, audio((LOUD, voice_ms), (0, 1_000)))
    assert finals(events) == said
    assert bool(captions(events)) == bool(said)


@pytest.mark.parametrize("voice_ms", [66, 80, 95])
def test_a_voice_that_begins_as_the_stream_ends_is_heard(voice_ms: int) -> None:
    quiet_ms = 672 - 64  # the detector's chunks of 32 ms: the last one is begun, never filled
    script = Script([("go", quiet_ms + 20, quiet_ms + 50)])
    session = session_of(script, SessionOptions(short_voice_ms=0))
    session.push(audio((0, quiet_ms), (LOUD, voice_ms)))
    session.stop()
    events = drain(session, script)
    assert session.is_done
    assert finals(events) == ["go"]
    assert [e.is_on for e in events if isinstance(e, SpeechChange)] == [True, False]


def test_a_voice_that_goes_on_as_the_stream_ends_ends_with_it() -> None:
    script = Script(spoken(2))
    events = run(script, audio((LOUD, 1_010)))
    changes = [(e.is_on, e.at_ms) for e in events if isinstance(e, SpeechChange)]
    assert changes == [(True, 0), (False, 1_010)]


class Naming:
    """Says who speaks by a count of its calls."""

    def __init__(self) -> None:
        self.heard = self.n_steps = self.n_rests = self.n_begun = 0

    @property
    def label(self) -> str | None:
        return f"after {self.n_steps}" if self.n_steps > 2 else None

    def begin(self) -> None:
        self.n_begun += 1

    def hear(self, frame: np.ndarray) -> None:
        assert frame.shape == (160,)
        self.heard += 1

    def step(self) -> None:
        self.n_steps += 1

    def rest(self) -> None:
        self.n_rests += 1

    def conclude(self) -> str | None:
        return "the end"


def test_captions_and_recogniser_are_told_who_speaks() -> None:
    script, naming = Script(spoken(4)), Naming()
    session = Session(
        fmt=AudioFormat(), stream=script, info=info(), detector=Loudness(), speaker=naming
    )
    session.push(audio((LOUD, 1_600), (0, 1_000)))
    session.stop()
    said = captions(drain(session, script))
    assert [c.speaker for c in said if c.is_final] == ["the end"]
    assert said[0].speaker == "after 3"  # as of the step before this caption
    assert said[-2].speaker in script.speakers
    assert script.speakers[-1] == f"after {naming.n_steps}"
    assert script.speakers[:3] == [None, None, "after 3"]
    assert naming.n_begun == 1
    assert 150 <= naming.heard <= 180  # the voice, from when it was sure and as long as it lasted
    session.rest()
    assert naming.n_rests == 1


def test_a_long_segment_is_concluded_at_each_part() -> None:
    script = Script(spoken(20))
    session = Session(
        fmt=AudioFormat(),
        stream=script,
        info=info(),
        detector=Loudness(),
        options=SessionOptions(max_segment_ms=3_000),
        speaker=Naming(),
    )
    session.push(audio((LOUD, 8_000), (0, 1_000)))
    session.stop()
    ends = [c.speaker for c in captions(drain(session, script)) if c.is_final]
    assert len(ends) >= 3
    assert set(ends) == {"the end"}
