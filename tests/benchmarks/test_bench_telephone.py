from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from benchmarks.measures import Errors
from benchmarks.recordings import Recording
from benchmarks.telephone import (
    HeldCall,
    MemoryLog,
    Row,
    hold_call,
    judge,
    judge_call,
    measure_rows,
    paired_points,
    parse_arguments,
)
from benchmarks.telephone_conditions import KEYS, MULAW, WIDE, utterances
from benchmarks.telephone_hold import Hold, LongCall, long_call
from benchmarks.telephone_plot import plot_call, plot_rows
from benchmarks.virtual_stream import Piece, VirtualListener
from tests.benchmarks.making import arrival
from tests.server.doubles import LoudnessDetector
from tests.server.telephony.tone_words import ToneRecognizer, tone_words, word_name

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.telephone_conditions import Utterance


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    """Recordings of two tone words each, a second apart."""
    found = []
    for n in range(3):
        path = tmp_path / f"{n}.wav"
        soundfile.write(path, tone_words(10 * n, 2), 16_000)
        text = f"{word_name(10 * n)} {word_name(10 * n + 1)}"
        found.append(Recording(f"{n}", path, "en", text))
    return found


@pytest.fixture
def listener() -> VirtualListener:
    return VirtualListener(ToneRecognizer(), LoudnessDetector, compute_s=lambda: 0.0)


def test_words_come_through_the_line(
    recordings: list[Recording], listener: VirtualListener
) -> None:
    rows = measure_rows(listener, recordings, [WIDE, MULAW, "G.722"], "default")
    assert [row.total for row in rows.values()] == [Errors(0, 0, 0, 6)] * 3
    told = rows[MULAW].as_json(rows[WIDE])
    assert told["n_words_outside_speech"] == 0
    assert told["points_over_16_khz"] == {"difference": 0.0, "low": 0.0, "high": 0.0}


def said(utterance: Utterance, *texts: str) -> Row:
    row = Row()
    captions = [arrival(100, text, is_final=True, segment=n) for n, text in enumerate(texts)]
    row.take(utterance, captions)
    return row


def test_words_outside_the_speech_are_told(recordings: list[Recording]) -> None:
    utterance = utterances(recordings)[0]
    assert said(utterance, "a b").stray == {"0": ["a", "b"]}  # at 0 and 100 ms
    first_ms, _ = utterance.speech_ms
    row = Row()
    caption = arrival(100, "a b", is_final=True).caption
    moved = tuple(
        replace(w, start_ms=w.start_ms + first_ms, end_ms=w.end_ms + first_ms)
        for w in caption.words
    )
    row.take(utterance, [replace(arrival(0, ""), caption=replace(caption, words=moved))])
    assert row.stray == {"0": []}


def test_points_are_those_of_the_pooled_words_and_draws_are_paired() -> None:
    first = {f"{n}": Errors(2, 0, 0, 10) for n in range(8)}
    second = {f"{n}": Errors(1, 0, 0, 10) for n in range(8)}
    assert paired_points(first, second) == {"difference": 10.0, "low": 10.0, "high": 10.0}
    first["0"] = Errors(9, 0, 0, 10)
    found = paired_points(first, second)
    assert found["difference"] == pytest.approx(18.75)
    assert found["low"] == 10.0 < found["difference"] < found["high"]


def row_of(n_wrong: int, stray: int = 0) -> Row:
    return Row({"a": ""}, {"a": Errors(n_wrong, 0, 0, 100)}, {"a": ["x"] * stray})


@pytest.mark.parametrize(("n_wrong", "is_met"), [(5, True), (6, False)])
def test_mulaw_may_cost_three_points(n_wrong: int, is_met: bool) -> None:  # noqa: FBT001
    (verdict,) = judge({WIDE: row_of(2), MULAW: row_of(n_wrong)})
    assert verdict.is_met is is_met


def test_pressed_keys_may_become_no_word() -> None:
    assert [v.is_met for v in judge({KEYS: row_of(9)})] == [True]
    assert [v.is_met for v in judge({KEYS: row_of(0, stray=1)})] == [False]
    assert judge({WIDE: row_of(1)}) == []


def test_memory_is_told_by_quarter() -> None:
    log = MemoryLog()
    pieces = [Piece(1_000.0 * n, b"") for n in range(41)]
    assert list(log.watch(pieces)) == pieces
    assert [at_ms for at_ms, _ in log.bytes_at] == [5_000.0 * n for n in range(9)]
    assert all(n_bytes > 1e6 for n_bytes in log.by_quarter())
    assert MemoryLog().by_quarter() == [0, 0, 0, 0]


@pytest.fixture
def held(recordings: list[Recording], listener: VirtualListener) -> HeldCall:
    call = long_call(recordings, 8_000, seed=1)  # short of its first hold part
    return hold_call(listener, call, {one.name: one.text for one in recordings}, "default")


def test_a_call_is_heard_and_drawn(held: HeldCall, tmp_path: Path) -> None:
    assert [v.target for v in judge_call(held) if v.target.startswith("recordings")] == [
        "recordings lost",
        "recordings doubled",
        "recordings that loop",
    ]
    told = held.as_json()
    assert told["n_recordings"] == len(held.call.stream.spoken) > 2
    assert told["n_lost"] == told["n_doubled"] == told["n_changed_committed"] == 0
    plot_call(held, tmp_path / "call.png")
    plot_rows({"a": row_of(1), "b": row_of(2)}, tmp_path / "rows.png")
    assert (tmp_path / "call.png").stat().st_size > 5_000
    assert (tmp_path / "rows.png").stat().st_size > 5_000


def broken(held: HeldCall, target: str) -> HeldCall:
    """Return a call that misses a target."""
    run, call, memory = held.run, held.call, held.memory
    match target:
        case "final words in hold parts" | "captions with a word in hold parts":
            whole = Hold("hold tone", 0, 1e9)
            return replace(held, call=LongCall(call.stream, (whole,)))
        case "recordings lost":
            finals = [a for a in run.arrivals if not a.caption.is_final]
            return replace(held, run=replace(run, arrivals=finals))
        case "lag grew":
            steps = [replace(s, lag_ms=100.0 * n) for n, s in enumerate(run.steps)]
            return replace(held, run=replace(run, steps=steps))
        case _:
            memory = MemoryLog([(1_000.0 * n, n * 2**23) for n in range(40)])
            return replace(held, memory=memory)


@pytest.mark.parametrize(
    "target",
    [
        "final words in hold parts",
        "captions with a word in hold parts",
        "recordings lost",
        "lag grew",
        "memory at the end over the second quarter",
    ],
)
def test_a_call_that_misses_a_target_is_told(held: HeldCall, target: str) -> None:
    met = {verdict.target: verdict.is_met for verdict in judge_call(held)}
    missed = {verdict.target: verdict.is_met for verdict in judge_call(broken(held, target))}
    assert met[target]
    assert not missed[target]


def test_the_command_line() -> None:
    args = parse_arguments(["--minutes", "2", "--conditions", MULAW, "--profile", "telephony"])
    assert (args.minutes, args.conditions, args.profile) == (2.0, [MULAW], "telephony")
    assert np.isclose(parse_arguments([]).minutes, 30.0)
