from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.voice_activity import (
    CHUNK_MS,
    CHUNK_SAMPLES,
    EDGE_MS,
    VoiceActivity,
    VoiceOptions,
)

SILENT, SURE, UNSURE = 0.01, 0.9, 0.4


class ScriptedDetector:
    """Says its lines in order and keeps what it was given."""

    def __init__(self, script: list[float]) -> None:
        self.script = script
        self.chunks: list[np.ndarray] = []

    def probability(self, samples: np.ndarray) -> float:
        assert samples.shape == (CHUNK_SAMPLES,)
        assert samples.dtype == np.float32
        self.chunks.append(samples.copy())
        return self.script[len(self.chunks) - 1]

    def reset(self) -> None:
        self.chunks.clear()


def noise(n_chunks: int, rms: float = 0.1) -> np.ndarray:
    samples = np.random.default_rng(0).standard_normal(n_chunks * CHUNK_SAMPLES)
    return (samples * rms).astype(np.float32)


def run(
    script: list[float], samples: np.ndarray, options: VoiceOptions | None = None
) -> tuple[list[SpeechChange], VoiceActivity]:
    voice = VoiceActivity(ScriptedDetector(script), options)
    return voice.push(samples), voice


def on(at_ms: int) -> SpeechChange:
    return SpeechChange(is_on=True, at_ms=at_ms)


def off(at_ms: int) -> SpeechChange:
    return SpeechChange(is_on=False, at_ms=at_ms)


def test_a_voice_begins_where_its_first_chunk_begins_and_ends_where_its_last_ends() -> None:
    script = [SILENT] * 10 + [SURE] * 10 + [SILENT] * 10
    changes, voice = run(script, noise(30))
    assert changes == [on(320), off(640)]
    assert not voice.is_voice
    assert voice.decided_ms == 960
    assert voice.last_voice_ms == 640
    assert voice.last_probability == SILENT


def test_before_the_first_chunk_nothing_is_known() -> None:
    changes, voice = run([], noise(1)[:480])
    assert changes == []
    assert (voice.is_voice, voice.decided_ms, voice.last_voice_ms) == (False, 0, 0)
    assert voice.last_probability == 0


def test_a_change_is_reported_with_the_chunk_that_makes_it_sure() -> None:
    voice = VoiceActivity(ScriptedDetector([SURE] * 2 + [SILENT] * 4))
    told = [len(voice.push(chunk)) for chunk in noise(6).reshape(6, CHUNK_SAMPLES)]
    assert told == [0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(("min_voice_ms", "n_chunks"), [(0, 1), (32, 1), (64, 2), (65, 3)])
def test_min_voice_ms_rounds_up_to_chunks(min_voice_ms: int, n_chunks: int) -> None:
    options = VoiceOptions(min_voice_ms=min_voice_ms)
    assert run([SURE] * n_chunks, noise(n_chunks), options)[1].is_voice
    too_short = [SURE] * (n_chunks - 1) + [SILENT]
    changes, voice = run(too_short, noise(n_chunks), options)
    assert changes == []
    assert voice.last_voice_ms == 0


@pytest.mark.parametrize(("min_silence_ms", "n_chunks"), [(0, 1), (128, 4), (140, 5)])
def test_min_silence_ms_rounds_up_to_chunks(min_silence_ms: int, n_chunks: int) -> None:
    options = VoiceOptions(min_silence_ms=min_silence_ms)
    script = [SURE] * 4 + [SILENT] * (n_chunks - 1) + [SURE]
    assert run(script, noise(len(script)), options)[0] == [on(0)]
    script = [SURE] * 4 + [SILENT] * n_chunks
    assert run(script, noise(len(script)), options)[0] == [on(0), off(128)]


def test_the_off_threshold_keeps_a_voice_but_does_not_begin_one() -> None:
    assert run([UNSURE] * 9, noise(9))[0] == []
    changes, voice = run([SURE, *[UNSURE] * 8], noise(9))
    assert changes == [on(0)]
    assert voice.last_voice_ms == 9 * CHUNK_MS


def test_thresholds_are_taken_from_the_options() -> None:
    options = VoiceOptions(on_threshold=0.35, off_threshold=0.3)
    assert run([UNSURE] * 9, noise(9), options)[0] == [on(0)]
    options = VoiceOptions(off_threshold=0.45)
    changes, _ = run([SURE] * 3 + [UNSURE] * 6, noise(9), options)
    assert changes == [on(0), off(96)]


def test_what_is_quieter_than_the_gate_is_silence_but_the_detector_hears_it() -> None:
    detector = ScriptedDetector([SURE] * 9)
    voice = VoiceActivity(detector, VoiceOptions(min_rms=0.01))
    assert voice.push(noise(9, rms=0.009)) == []
    assert len(detector.chunks) == 9
    assert run([SURE] * 9, noise(9, rms=0.011), VoiceOptions(min_rms=0.01))[0] == [on(0)]


def test_a_weak_first_sound_before_the_detector_wakes_is_part_of_the_voice() -> None:
    samples = np.concatenate([noise(8, 0.001), noise(3, 0.02), noise(5, 0.2)])
    samples[8 * CHUNK_SAMPLES : 8 * CHUNK_SAMPLES + 256] *= 0.05
    changes, _ = run([SILENT] * 11 + [SURE] * 5, samples)
    assert changes == [on(8 * CHUNK_MS + 16)]


def test_the_beginning_moves_no_further_than_the_longest_consonant() -> None:
    samples = noise(30)
    samples[12 * CHUNK_SAMPLES : 13 * CHUNK_SAMPLES] = 0
    changes, _ = run([SILENT] * 20 + [SURE] * 10, samples)
    assert changes == [on(20 * CHUNK_MS - EDGE_MS)]


def test_a_detector_that_lets_go_late_does_not_move_the_end() -> None:
    samples = np.concatenate([noise(10), noise(10, 0.0005)])
    changes, voice = run([SURE] * 13 + [SILENT] * 7, samples)
    assert changes == [on(0), off(10 * CHUNK_MS)]
    assert voice.last_voice_ms == 13 * CHUNK_MS


def test_where_the_sound_is_even_the_detector_places_the_edges() -> None:
    hum = np.full(30 * CHUNK_SAMPLES, 0.1, np.float32)
    changes, _ = run([SILENT] * 10 + [SURE] * 10 + [SILENT] * 10, hum)
    assert changes == [on(320), off(640)]


def test_edges_never_cross() -> None:
    samples = np.concatenate([noise(4), noise(5, 0.0003), noise(9)])
    script = [SURE] * 3 + [SILENT] * 4 + [SURE] * 2 + [SILENT] * 9
    changes, _ = run(script, samples)
    assert [change.is_on for change in changes] == [True, False, True, False]
    assert all(first.at_ms <= second.at_ms for first, second in pairwise(changes))


def test_a_quiet_source_is_raised_for_the_detector_up_to_the_limit() -> None:
    detector = ScriptedDetector([SILENT] * 2)
    quiet = noise(2, 0.003)
    quiet[0] = 0.015
    VoiceActivity(detector).push(quiet)
    np.testing.assert_allclose(np.concatenate(detector.chunks), quiet * 20, rtol=1e-2)
    detector = ScriptedDetector([SILENT])
    VoiceActivity(detector, VoiceOptions(max_gain_db=6.0206)).push(quiet[:CHUNK_SAMPLES])
    np.testing.assert_allclose(detector.chunks[0], quiet[:CHUNK_SAMPLES] * 2, rtol=1e-4)


def test_a_loud_source_reaches_the_detector_unchanged_and_so_does_what_follows() -> None:
    detector = ScriptedDetector([SILENT] * 3)
    samples = np.concatenate([noise(1, 0.3), np.zeros(CHUNK_SAMPLES, np.float32), noise(1, 0.01)])
    VoiceActivity(detector).push(samples)
    np.testing.assert_array_equal(np.concatenate(detector.chunks), samples)


def test_the_gain_comes_back_after_a_loud_sound() -> None:
    detector = ScriptedDetector([SILENT] * 2_001)
    samples = noise(2_001, 0.003)
    samples[0] = 0.9
    VoiceActivity(detector).push(samples)
    assert np.abs(detector.chunks[1]).max() < 0.02
    assert np.abs(detector.chunks[-1]).max() > 0.1


def test_the_end_of_the_stream_ends_the_voice_where_the_sound_ends() -> None:
    voice = VoiceActivity(ScriptedDetector([SURE] * 4))
    assert voice.push(noise(4)[: 3 * CHUNK_SAMPLES + 256]) == [on(0)]
    assert voice.flush() == [off(3 * CHUNK_MS + 16)]
    assert not voice.is_voice
    assert voice.flush() == []


def test_the_end_of_the_stream_can_make_a_pause_sure() -> None:
    voice = VoiceActivity(ScriptedDetector([SURE] * 4 + [SILENT] * 4))
    assert voice.push(noise(8)[:-1]) == [on(0)]
    assert voice.flush() == [off(128)]


def test_an_empty_stream_ends_without_a_change() -> None:
    assert VoiceActivity(ScriptedDetector([])).flush() == []


@settings(max_examples=80, deadline=None)
@given(
    script=st.lists(st.sampled_from([SILENT, UNSURE, SURE]), min_size=40, max_size=40),
    levels=st.lists(st.sampled_from([0.0, 0.0002, 0.01, 0.3]), min_size=40, max_size=40),
    cuts=st.lists(st.integers(0, 128), max_size=30),
)
def test_any_chunking_gives_the_same_changes(
    script: list[float], levels: list[float], cuts: list[int]
) -> None:
    samples = noise(40, 1.0) * np.repeat(np.array(levels, np.float32), CHUNK_SAMPLES)
    whole = VoiceActivity(ScriptedDetector(script))
    expected = whole.push(samples) + whole.flush()
    split = VoiceActivity(ScriptedDetector(script))
    parts = np.split(samples, sorted(cut * 160 for cut in cuts))
    changes = [change for part in parts for change in split.push(part)] + split.flush()
    assert changes == expected
    assert split.decided_ms == whole.decided_ms == 40 * CHUNK_MS
    assert split.last_voice_ms == whole.last_voice_ms
    assert [change.is_on for change in changes] == [k % 2 == 0 for k in range(len(changes))]
    assert all(first.at_ms <= second.at_ms for first, second in pairwise(changes))


@settings(max_examples=80, deadline=None)
@given(script=st.lists(st.sampled_from([SILENT, UNSURE, SURE]), min_size=60, max_size=60))
def test_a_change_lies_within_the_stated_distance(script: list[float]) -> None:
    voice = VoiceActivity(ScriptedDetector(script))
    for chunk in noise(60).reshape(60, CHUNK_SAMPLES):
        for change in voice.push(chunk):
            wait_ms = 64 if change.is_on else 128
            assert 0 <= voice.decided_ms - change.at_ms <= wait_ms + EDGE_MS
            assert change.is_on == voice.is_voice


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"on_threshold": 0.3}, "0.3"),
        ({"on_threshold": 1.0}, "1.0"),
        ({"off_threshold": 0.0}, "0.0"),
        ({"min_voice_ms": -1}, "min_voice_ms = -1"),
        ({"min_silence_ms": -1}, "min_silence_ms = -1"),
        ({"min_rms": float("nan")}, "min_rms = nan"),
        ({"max_gain_db": float("inf")}, "max_gain_db = inf"),
    ],
)
def test_impossible_options_are_refused(bad: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        VoiceOptions(**bad)  # type: ignore[arg-type]
    assert caught.value.code == "bad_voice_options"
