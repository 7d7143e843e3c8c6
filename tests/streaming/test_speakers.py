from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.speakers import FixedSpeaker, SpeakerOptions, SpeakerTracker

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRAMES_PER_SECOND = 100
N_VOICES = 8


def voice(number: int, *, seconds: float) -> list[NDArray[np.float32]]:
    """Return frames of a voice that the encoder below knows by its level."""
    n_frames = round(seconds * FRAMES_PER_SECOND)
    return [np.full(160, number + 1, np.float32) for _ in range(n_frames)]


class Encoder:
    """Tells voices apart by their level: each has a direction of its own.

    Attributes:
        lengths_ms: Length of each window it was given.
    """

    def __init__(self) -> None:
        self.lengths_ms: list[int] = []

    def embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        self.lengths_ms.append(len(samples) // 16)
        counts = np.bincount(samples.astype(int), minlength=N_VOICES + 1)[1:].astype(np.float32)
        embedding: NDArray[np.float32] = counts / np.linalg.norm(counts)
        return embedding


def say(tracker: SpeakerTracker, number: int, *, seconds: float) -> list[str | None]:
    """Let a voice speak a segment with a step every 200 ms; return the labels of the steps."""
    tracker.begin()
    labels = []
    for i, frame in enumerate(voice(number, seconds=seconds), 1):
        tracker.hear(frame)
        if i % 20 == 0:
            tracker.step()
            labels.append(tracker.label)
            tracker.rest()
    return labels


def tracker(**options: float) -> SpeakerTracker:
    options = {"min_voice_ms": 800} | options
    return SpeakerTracker(Encoder().embed, SpeakerOptions(**options))  # type: ignore[arg-type]


def test_a_given_speaker_is_always_the_one() -> None:
    for label in ("agent", None):
        speaker = FixedSpeaker(label)
        speaker.begin()
        speaker.hear(np.zeros(160, np.float32))
        speaker.step()
        speaker.rest()
        assert speaker.label == speaker.conclude() == label


def test_voices_are_labelled_as_they_come_and_known_again() -> None:
    one = tracker()
    ends = []
    for number in (3, 5, 3, 3, 1, 5):
        say(one, number, seconds=2)
        ends.append(one.conclude())
    numbers = (1, 2, 1, 1, 3, 2)
    assert ends == [f"speaker {number}" for number in numbers]


def test_a_known_voice_is_named_while_it_speaks() -> None:
    one = tracker(min_voice_ms=800, new_voice_ms=1_600, look_ms=800)
    labels = say(one, 0, seconds=3)
    # The window of the first 0.8 s counts from the step after; new it may be from 1.6 s on.
    assert labels[:7] == [None] * 7
    assert set(labels[7:]) == {"speaker 1"}
    one.conclude()
    labels = say(one, 0, seconds=2)
    assert labels[:4] == [None] * 4
    assert set(labels[4:]) == {"speaker 1"}


def test_less_than_a_new_speaker_needs_goes_to_one_like_it_and_teaches_nothing() -> None:
    options = {"min_voice_ms": 500, "new_voice_ms": 1_000, "window_ms": 1_000, "look_ms": 600}
    one = tracker(threshold=0.95, short_threshold=0.85, **options)
    say(one, 0, seconds=1)
    assert one.conclude() == "speaker 1"
    for _ in range(20):
        one.begin()
        for frame in voice(1, seconds=0.2) + voice(0, seconds=0.4):  # cosine 0.89
            one.hear(frame)
        one.step()
        one.rest()
        one.step()
        assert one.label is None  # not sure enough while more may come
        assert one.conclude() == "speaker 1"
    one.begin()
    for frame in voice(1, seconds=0.4) + voice(0, seconds=0.4):  # 0.71
        one.hear(frame)
    assert one.conclude() is None
    one.begin()
    for frame in voice(1, seconds=0.6) + voice(0, seconds=0.6):  # 0.83, and long enough
        one.hear(frame)
    assert one.conclude() == "speaker 2"


def test_a_voice_too_short_to_be_new_has_no_label_and_is_not_learnt() -> None:
    one = tracker(min_voice_ms=400, new_voice_ms=1_000)
    say(one, 0, seconds=0.9)
    assert one.conclude() is None
    say(one, 1, seconds=1)
    assert one.conclude() == "speaker 1"
    say(one, 1, seconds=0.9)
    assert one.conclude() == "speaker 1"


def test_less_than_the_least_voice_is_not_even_embedded() -> None:
    encoder = Encoder()
    one = SpeakerTracker(encoder.embed, SpeakerOptions(min_voice_ms=500, look_ms=100))
    say(one, 0, seconds=0.4)
    assert one.conclude() is None
    assert encoder.lengths_ms == []


def test_an_encoder_that_says_nothing_names_nobody() -> None:
    one = SpeakerTracker(lambda _: np.zeros(2, np.float32))
    assert set(say(one, 0, seconds=2)) == {None}
    assert one.conclude() is None


def test_windows_overlap_and_the_rest_of_a_segment_counts() -> None:
    encoder = Encoder()
    one = SpeakerTracker(encoder.embed, SpeakerOptions(window_ms=1_000, look_ms=500))
    say(one, 0, seconds=2.3)
    one.conclude()
    # At 0.5 s what there is, at 1, 1.5 and 2 s the last second, and at the end again.
    assert encoder.lengths_ms == [500, 1_000, 1_000, 1_000, 1_000]


def test_a_short_rest_of_a_segment_is_left_out() -> None:
    encoder = Encoder()
    one = SpeakerTracker(encoder.embed, SpeakerOptions(window_ms=1_000, look_ms=500))
    say(one, 0, seconds=2.2)
    one.conclude()
    assert encoder.lengths_ms == [500, 1_000, 1_000, 1_000]


def test_the_first_whole_window_replaces_the_short_one() -> None:
    one = tracker(min_voice_ms=500, window_ms=1_000, look_ms=500, new_voice_ms=500, threshold=0.9)
    say(one, 0, seconds=1)
    one.conclude()
    one.begin()
    for frame in voice(1, seconds=0.5) + voice(0, seconds=1):
        one.hear(frame)
    # Voice 1 alone, both in equal parts, voice 0 alone: without the first, nearer to voice 0.
    assert one.conclude() == "speaker 1"


def test_a_mean_of_whole_windows_says_who_spoke_most() -> None:
    one = tracker(min_voice_ms=500, window_ms=500, look_ms=500, new_voice_ms=500, threshold=0.8)
    say(one, 0, seconds=1)
    one.conclude()
    one.begin()
    for frame in voice(1, seconds=0.5) + voice(0, seconds=1.5):
        one.hear(frame)
    assert one.conclude() == "speaker 1"


def test_what_was_heard_before_a_segment_does_not_count() -> None:
    one = tracker()
    for frame in voice(0, seconds=3):
        one.hear(frame)
    say(one, 1, seconds=0.5)
    assert one.conclude() is None
    assert say(one, 1, seconds=2)[-1] == "speaker 1"


def test_the_number_of_speakers_is_limited() -> None:
    one = tracker(max_speakers=2)
    ends = []
    for number in range(4):
        say(one, number, seconds=2)
        ends.append(one.conclude())
    assert set(ends) == {"speaker 1", "speaker 2"}


@given(
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(10, 400)), max_size=5),
    rests=st.lists(st.booleans(), max_size=60),
)
def test_labels_do_not_depend_on_when_there_is_time_to_rest(
    turns: list[tuple[int, int]], rests: list[bool]
) -> None:
    always, sometimes = tracker(), tracker()
    n_steps = 0
    for number, n_frames in turns:
        for one in (always, sometimes):
            one.begin()
        for i, frame in enumerate(voice(number, seconds=n_frames / FRAMES_PER_SECOND), 1):
            for one in (always, sometimes):
                one.hear(frame)
            if i % 20 == 0:
                n_steps += 1
                for one in (always, sometimes):
                    one.step()
                assert always.label == sometimes.label
                always.rest()
                if n_steps < len(rests) and rests[n_steps]:
                    sometimes.rest()
        assert always.conclude() == sometimes.conclude()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(200, 300)), max_size=5))
def test_memory_is_bounded_by_the_window(turns: list[tuple[int, int]]) -> None:
    one = tracker()
    for number, n_frames in turns:
        for i, frame in enumerate(voice(number, seconds=n_frames / FRAMES_PER_SECOND), 1):
            one.hear(frame)
            if i % 20 == 0:
                one.step()
            assert len(one._window) <= 160
            assert len(one._new) + len(one._due) <= 2
        one.conclude()


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0.0},
        {"threshold": 1.0},
        {"short_threshold": 0.0},
        {"min_voice_ms": 9},
        {"new_voice_ms": 0},
        {"window_ms": 9},
        {"look_ms": -1},
        {"max_speakers": 0},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        tracker(**options)
