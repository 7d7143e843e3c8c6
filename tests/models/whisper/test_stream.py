from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.whisper.stream import WindowOptions
from tests.models.whisper.stream_doubles import (
    LIMIT_MS,
    WINDOW,
    Recorded,
    noise,
    said,
    stream,
    texts,
)

if TYPE_CHECKING:
    from tests.models.whisper.conftest import Tiny


def test_words_lie_in_the_window_in_order(tiny: Tiny, worded: np.ndarray) -> None:
    hypothesis = stream(tiny, audio=worded, at_ms=7000).decode()
    times = [t for word in hypothesis.words for t in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[0] >= 7000
    assert times[-1] <= 8000
    assert all(0 <= word.confidence <= 1 for word in hypothesis.words)
    assert not any(word.is_final for word in hypothesis.words)
    assert hypothesis.language == "en"
    assert hypothesis.is_settled


def test_times_move_with_the_window(tiny: Tiny, worded: np.ndarray) -> None:
    at_start = stream(tiny, audio=worded).decode()
    later = stream(tiny, audio=worded, at_ms=5000).decode()
    assert texts(later) == texts(at_start)
    for word, moved in zip(at_start.words, later.words, strict=True):
        assert (moved.start_ms, moved.end_ms) == (word.start_ms + 5000, word.end_ms + 5000)


@settings(deadline=None, max_examples=8)
@given(cuts=st.lists(st.integers(0, 16_000), max_size=6))
def test_any_chunking_gives_the_same_hypothesis(tiny: Tiny, cuts: list[int]) -> None:
    audio = noise(1000, seed=3)
    in_pieces = stream(tiny)
    for piece in np.split(audio, sorted(cuts)):
        in_pieces.append(piece)
    assert in_pieces.end_ms == 1000
    assert in_pieces.decode() == stream(tiny, audio=audio).decode()


def test_a_window_without_audio_can_be_decoded(tiny: Tiny) -> None:
    hypothesis = stream(tiny).decode()
    assert all(word.end_ms <= 20 for word in hypothesis.words)


def test_decoding_again_costs_one_pass(tiny: Tiny, worded: np.ndarray, recorded: Recorded) -> None:
    opened = stream(tiny, audio=worded)
    first, second = opened.decode(), opened.decode()
    assert first == second
    assert recorded.drafts[0] == []
    assert recorded.drafts[1] == recorded.results[0].tokens
    assert recorded.results[1].n_forwards == 1 or not recorded.results[0].is_complete


def test_committed_words_are_forced_and_the_rest_stands(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    opened = stream(tiny, audio=worded)
    before = opened.decode()
    tokens = [t for word, _ in opened._latest[:2] for t in word.tokens]
    opened.commit(2)
    after = opened.decode()
    assert recorded.forced[1] == tokens
    assert recorded.drafts[1] == recorded.results[0].tokens[len(tokens) :]
    assert recorded.results[0].tokens == [*tokens, *recorded.results[1].tokens]
    assert texts(after)[: len(texts(before)) - 2] == texts(before)[2:]


def test_committing_nothing_changes_nothing(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    opened = stream(tiny, audio=worded)
    before = opened.decode()
    opened.commit(0)
    assert opened.decode() == before
    assert recorded.forced == [[], []]


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "commit", "segment", "open"]), st.integers(0, 700)),
    min_size=4,
    max_size=8,
)


@settings(deadline=None, max_examples=8)
@given(steps=STEPS, seed=st.integers(0, 50))
def test_words_never_begin_before_what_is_committed(
    tiny: Tiny, steps: list[tuple[str, int]], seed: int
) -> None:
    opened = stream(tiny)
    heard_ms = committed_ms = 0
    for i, (kind, number) in enumerate(steps):
        hypothesis = opened.decode()
        edges = [t for word in hypothesis.words for t in (word.start_ms, word.end_ms)]
        assert edges == sorted(edges)
        assert not edges or (edges[0] >= committed_ms and edges[-1] <= max(heard_ms, committed_ms))
        if kind == "append":
            opened.append(noise(number, seed + i))
            heard_ms += number
        elif kind == "commit":
            n = min(number % 4, len(hypothesis.words))
            opened.commit(n)
            committed_ms = hypothesis.words[n - 1].end_ms if n else committed_ms
        elif kind == "segment":
            opened.begin_segment(max(0, heard_ms - number))
        else:
            opened.open(max(0, heard_ms - number))
            heard_ms = max(0, heard_ms - number)
        assert opened.end_ms == heard_ms
        assert heard_ms - opened._start_ms <= LIMIT_MS


def test_a_long_window_lets_committed_audio_go(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    tokens = tiny.text.encode(" one two three")
    n_one, n_two = len(tiny.text.encode(" one")), len(tiny.text.encode(" two"))
    slots = [2] * n_one + [15] * n_two + [35] * (len(tokens) - n_one - n_two)
    recorded.scripted = said(tokens, slots, n_slots=50)
    assert texts(opened.decode()) == ["one", "two", "three"]
    ends_ms = [timed.end_ms for _, timed in opened._latest]
    opened.commit(2)
    assert (opened._start_ms, opened.end_ms) == (0, 1000)  # not yet long
    recorded.scripted = None
    opened.append(noise(300, seed=1))
    opened.decode()
    opened.commit(0)
    # "one" ended well before the last committed word: its audio goes, up to its end.
    assert ends_ms[1] - ends_ms[0] >= WINDOW.keep_ms
    assert opened._start_ms == ends_ms[0]
    assert opened.end_ms == 1300
    assert opened._mel.n_samples == (1300 - ends_ms[0]) * 16
    opened.decode()
    assert recorded.forced[-1] == tiny.text.encode(" two")


def test_without_commits_a_window_goes_on_hearing_what_is_new(tiny: Tiny) -> None:
    opened = stream(tiny)
    for i in range(40):
        opened.append(noise(200, seed=i))
    hypothesis = opened.decode()
    assert opened.end_ms == 8000
    assert 8000 - opened._start_ms <= LIMIT_MS
    fresh = stream(tiny, at_ms=opened._start_ms)
    for i in range(40):
        fresh.append(noise(200, seed=i)[max(0, opened._start_ms - 200 * i) * 16 :])
    # Not the same to the last bit: the trimmed window knows what came just before it.
    difference = opened._mel.features(250) - fresh._mel.features(250)
    assert difference[:, 2:].abs().max() < 1e-4
    assert all(word.start_ms >= opened._start_ms for word in hypothesis.words)


def test_a_flood_of_audio_keeps_the_newest(tiny: Tiny) -> None:
    opened = stream(tiny, audio=noise(9000))
    assert opened.end_ms == 9000
    assert opened._start_ms >= 9000 - LIMIT_MS
    opened.decode()


def test_a_fresh_window_forgets_the_audio_and_the_words(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    opened = stream(tiny, audio=worded)
    opened.decode()
    opened.commit(1)
    opened.open(4000)
    opened.append(noise(500, seed=2))
    assert opened.end_ms == 4500
    hypothesis = opened.decode()
    assert recorded.forced[-1] == recorded.drafts[-1] == []
    assert recorded.contexts[-1] == tiny.text.start_tokens("en")
    assert hypothesis == stream(tiny, audio=noise(500, seed=2), at_ms=4000).decode()


def test_text_before_the_window_is_context_where_wanted(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    window = WindowOptions(padding_ms=400, max_previous_tokens=2)
    opened = stream(tiny, audio=worded, window=window)
    opened.decode()
    tokens = [t for word, _ in opened._latest[:3] for t in word.tokens]
    opened.commit(3)
    opened.open(4000)
    opened.append(noise(500))
    opened.decode()
    assert recorded.contexts[-1] == [
        tiny.text.start_of_previous,
        *tokens[-2:],
        *tiny.text.start_tokens("en"),
    ]


def test_a_long_window_keeps_what_was_committed_lately(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1400))
    (the,) = tiny.text.encode(" the")
    recorded.scripted = said([the], [10], n_slots=70)
    opened.decode()
    opened.commit(1)
    assert opened._start_ms == 0


def test_a_word_that_moves_before_committed_ones_is_held_back(
    tiny: Tiny, recorded: Recorded
) -> None:
    (the,), (other,) = tiny.text.encode(" the"), tiny.text.encode(" other")
    opened = stream(tiny, audio=noise(1000))
    recorded.scripted = said([the, other], [2, 30], n_slots=50)
    committed_ms = opened.decode().words[0].end_ms
    opened.commit(1)
    recorded.scripted = said([other], [2, 10], n_slots=50)
    (word,) = opened.decode().words
    assert word.start_ms == committed_ms > 400
    opened.open(100)  # a window that goes back over what is committed
    opened.append(noise(1000))
    recorded.scripted = said([other], [2], n_slots=50)
    (word,) = opened.decode().words
    assert word.start_ms == committed_ms
