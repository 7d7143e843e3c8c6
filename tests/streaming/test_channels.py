from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.base import StreamOptions
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption, Notice, SpeechChange
from audiokv.streaming.channels import ChannelSplitter, check_labels
from audiokv.streaming.errors import MessageError
from audiokv.streaming.recognition_counts import RecognitionCounts
from audiokv.streaming.session import Session
from audiokv.streaming.session_options import SessionOptions
from audiokv.streaming.speakers import FixedSpeaker
from tests.streaming.channel_script import (
    LABELS,
    Call,
    Turns,
    alone,
    bare,
    check_numbers,
    interleaved,
    pcm,
    table,
    turn_lists,
)
from tests.streaming.session_script import COUNTERS, LOUD, Loudness, Script, audio, captions, info


@settings(max_examples=15, deadline=None)
@given(
    turns=st.tuples(turn_lists(), turn_lists()),
    cuts=st.lists(st.integers(0, 400_000), max_size=12),
)
def test_each_channel_says_what_it_says_alone_however_the_bytes_are_split(
    turns: tuple[Turns, Turns], cuts: list[int]
) -> None:
    whole_ms = max(sum(q + v for q, v in one) for one in turns) + 700
    sounds = [pcm(one, whole_ms) for one in turns]
    both = interleaved(sounds)
    runs = []
    for edges in ([0, len(both)], [0, *sorted(cuts), len(both)]):
        call = Call([Script(table(one, str(i))) for i, one in enumerate(turns)])
        for start, end in pairwise(edges):
            call.group.push(both[start:end])
            call.work()
        call.group.stop()
        call.work()
        assert call.group.is_done
        runs.append(call)
    whole, split = runs
    assert split.events == whole.events
    for i, label in enumerate(LABELS):
        lone = alone(turns[i], str(i), sounds[i])
        assert bare(split.of(label)) == bare(captions(lone.events))
        assert split.scripts[i].heard == lone.scripts[0].heard
    check_numbers(captions(split.events))


def test_the_echo_of_one_channel_is_no_speech_of_the_other() -> None:
    turns: Turns = [(300, 900), (300, 600)]
    voice = np.frombuffer(pcm(turns, 3_000), "<i2")
    for softer, n_voices in ((16, 1), (4, 2)):
        echo = np.roll(voice // softer, 16 * 120).astype("<i2").tobytes()
        call = Call([Script(table(turns, "0")), Script(table(turns, "1"))])
        call.group.push(interleaved([voice.tobytes(), echo]))
        call.group.stop()
        call.work()
        assert sum(bool(call.of(label)) for label in LABELS) == n_voices


@settings(max_examples=10, deadline=None)
@given(turns=turn_lists(), cuts=st.lists(st.integers(0, 200_000), max_size=5))
def test_one_channel_is_passed_through(turns: Turns, cuts: list[int]) -> None:
    sound = pcm(turns, sum(q + v for q, v in turns) + 700)
    session = Session(
        fmt=AudioFormat(),
        stream=(script := Script(table(turns, "w"))),
        info=info(),
        detector=Loudness(),
        speaker=FixedSpeaker("w"),
    )
    session.push(sound)
    session.stop()
    expected = session.prepare()
    while session.is_step_due:
        expected += session.apply(script.decode())
        expected += session.prepare()
    call = Call([Script(table(turns, "w"))], ["w"])
    for start, end in pairwise([0, *sorted(cuts), len(sound)]):
        call.group.push(sound[start:end])
        call.work()
    call.group.stop()
    call.work()
    assert call.events == expected


@given(
    parts=st.lists(st.binary(max_size=60), min_size=1, max_size=3),
    sample_bytes=st.sampled_from([1, 2, 4]),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_samples_are_taken_apart_whole(
    parts: list[bytes], sample_bytes: int, cuts: list[int]
) -> None:
    n_bytes = min(len(part) for part in parts) // sample_bytes * sample_bytes
    parts = [part[:n_bytes] for part in parts]
    both = interleaved(parts, sample_bytes) + b"\x07"[: sample_bytes * len(parts) - 1]
    splitter = ChannelSplitter(sample_bytes, len(parts))
    found = [b""] * len(parts)
    for start, end in pairwise([0, *sorted(cuts), len(both)]):
        new = splitter.push(both[start:end])
        assert len({len(one) for one in new}) == 1
        found = [old + one for old, one in zip(found, new, strict=True)]
    assert found == parts


def test_each_channel_has_its_own_resampler() -> None:
    # A loud and a silent telephone leg: nothing of the one may leak into the other.
    fmt = AudioFormat(Encoding.MULAW, 8_000, 1)
    rng = np.random.default_rng(1)
    loud = rng.integers(0, 255, 8_000, dtype=np.uint8).tobytes()
    call = Call([Script([]), Script([])], fmt=fmt)
    both = interleaved([loud, b"\xff" * 8_000], 1)
    for start in range(0, len(both), 321):
        call.group.push(both[start : start + 321])
    call.work()
    agent, caller = call.group.sessions
    assert agent._tape._samples.any()
    assert not caller._tape._samples.any()
    alone = Call([Script([])], ["agent"], fmt=fmt)
    alone.group.push(loud)
    alone.work()
    assert np.array_equal(agent._tape._samples, alone.group.sessions[0]._tape._samples)


def test_a_silent_channel_costs_no_decode() -> None:
    turns: Turns = [(300, 2_000), (600, 1_000)]
    call = Call([Script(table(turns, "a")), Script([("never", 0, 100)])])
    call.group.push(interleaved([pcm(turns, 5_000), bytes(160_000)]))
    call.group.stop()
    call.work()
    assert call.scripts[1].heard == []
    assert set(call.batches) == {1}
    assert call.of("caller") == []
    assert len(call.scripts[0].heard) > 5


def test_steps_that_are_due_on_both_channels_are_decoded_together() -> None:
    turns: tuple[Turns, Turns] = ([(100, 2_000)], [(170, 2_000)])
    call = Call([Script(table(one, "w")) for one in turns])
    call.group.push(interleaved([pcm(one, 3_000) for one in turns]))
    call.group.stop()
    call.work()
    n_steps = sum(len(script.heard) for script in call.scripts)
    assert len(call.batches) <= n_steps / 2 + 1
    assert max(call.batches) == 2


def test_captions_come_in_the_order_in_which_they_were_decided() -> None:
    turns: tuple[Turns, Turns] = ([(0, 1_000), (1_000, 1_000)], [(1_200, 700)])
    call = Call([Script(table(one, "w")) for one in turns])
    call.group.push(interleaved([pcm(one, 4_000) for one in turns]))
    call.group.stop()
    call.work()
    finals = [(c.speaker, c.start_ms) for c in captions(call.events) if c.is_final]
    assert finals == [("agent", 20), ("caller", 1_220), ("agent", 2_020)]


def test_a_channel_that_waits_for_its_step_holds_back_what_came_later() -> None:
    turns: tuple[Turns, Turns] = ([(0, 2_000)], [(100, 300)])
    call = Call([Script(table(one, "w")) for one in turns])
    call.group.push(interleaved([pcm(one, 2_000) for one in turns]))
    early = call.group.prepare()
    assert [e for e in early if isinstance(e, Caption)] == []
    at_ms = [session.processed_ms for session in call.group.sessions]
    assert call.group.processed_ms == min(at_ms)
    assert at_ms[0] < at_ms[1]
    assert all(not isinstance(e, SpeechChange) or e.at_ms <= at_ms[0] for e in early)
    assert call.group.received_ms == 2_000


def test_the_voice_is_on_while_any_channel_has_one() -> None:
    turns: tuple[Turns, Turns] = ([(0, 2_000)], [(1_000, 2_000)])
    call = Call([Script([]), Script([])])
    call.group.push(interleaved([pcm(one, 5_000) for one in turns]))
    call.group.stop()
    call.work()
    changes = [(e.is_on, e.at_ms) for e in call.events if isinstance(e, SpeechChange)]
    assert [is_on for is_on, _ in changes] == [True, False]
    assert changes[0][1] < 100
    assert 2_900 <= changes[1][1] <= 3_200


@settings(max_examples=12, deadline=None)
@given(turns=st.tuples(turn_lists(), turn_lists()), ends_ms=st.lists(st.integers(0, 4_000)))
def test_finalizing_reaches_both_and_speech_goes_on_and_off_in_turn(
    turns: tuple[Turns, Turns], ends_ms: list[int]
) -> None:
    whole_ms = max(sum(q + v for q, v in one) for one in turns) + 700
    both = interleaved([pcm(one, whole_ms) for one in turns])
    call = Call([Script(table(one, "w")) for one in turns])
    for start, end in pairwise([0, *(64 * ms for ms in sorted(ends_ms)), len(both)]):
        call.group.push(both[start:end])
        call.group.finalize()
        call.work()
        assert all(session._segment is None for session in call.group.sessions)
    call.group.stop()
    call.work()
    changes = [e for e in call.events if isinstance(e, SpeechChange)]
    assert [c.is_on for c in changes] == [i % 2 == 0 for i in range(len(changes))]
    assert len(changes) % 2 == 0
    assert all(a.at_ms <= b.at_ms for a, b in pairwise(changes))
    check_numbers(captions(call.events))


def test_wishes_and_lag_reach_every_channel() -> None:
    call = Call([Script([]), Script([])])
    call.group.update(StreamOptions(language="de"))
    call.group.be_late(7_000)
    call.work()
    assert [script.options for script in call.scripts] == [[StreamOptions(language="de")]] * 2
    assert [session.lag_ms for session in call.group.sessions] == [7_000] * 2


def test_only_the_channels_that_were_decoded_rest() -> None:
    turns: Turns = [(0, 1_000)]
    call = Call([Script(table(turns, "w")), Script([])])
    call.group.push(interleaved([pcm(turns, 1_000), bytes(32_000)]))
    call.work()
    assert call.scripts[0].n_rests == len(call.batches) > 0
    assert call.scripts[1].n_rests == 0


def test_the_caches_of_the_channels_add_up() -> None:
    call = Call([Script([]), Script([])])
    totals = [call.group.cache_counters]
    for script in call.scripts:
        script.rest()
        totals.append(call.group.cache_counters)
    assert totals[:2] == [None, COUNTERS]
    total = totals[2]
    assert total is not None
    assert total.policy == COUNTERS.policy
    assert total.budget_slots == 2 * COUNTERS.budget_slots
    assert total.pools.base == 2 * COUNTERS.pools.base
    assert total.n_evictions.between_steps == 2 * COUNTERS.n_evictions.between_steps


def test_warnings_are_passed_on() -> None:
    call = Call([Script([]), Script([])], options=SessionOptions(blank_ms=1_000))
    assert call.group.recognition is None
    call.group.push(interleaved([audio((LOUD, 2_000)), bytes(64_000)]))
    call.work()
    codes = [e.code for e in call.events if isinstance(e, Notice)]
    assert codes[:1] == ["no_words"]
    assert call.group.recognition == RecognitionCounts(n_restarts=len(codes))


@pytest.mark.parametrize(
    ("labels", "n_channels"),
    [(("agent",), 2), (("a", "b"), 1), (("a", "a "), 2), (("", "b"), 2), ((" ",), 1)],
)
def test_labels_that_do_not_tell_channels_apart_are_refused(
    labels: tuple[str, ...], n_channels: int
) -> None:
    with pytest.raises(MessageError, match="channel_labels") as caught:
        check_labels(labels, n_channels)
    assert caught.value.code == "bad_field"
    assert caught.value.remedy


@pytest.mark.parametrize(("labels", "n_channels"), [((), 1), ((), 2), (("a",), 1), (LABELS, 2)])
def test_good_labels_are_taken(labels: tuple[str, ...], n_channels: int) -> None:
    check_labels(labels, n_channels)
