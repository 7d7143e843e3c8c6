from __future__ import annotations

from benchmarks.measures import final_text, n_erased_words, word_timings
from benchmarks.peers.whisperlivekit import arrivals_from


def update(lines: list[str], buffer: str = "") -> dict[str, object]:
    return {"lines": [{"text": text} for text in lines], "buffer_transcription": buffer}


def test_lines_are_committed_and_the_buffer_is_not() -> None:
    found = arrivals_from(
        [
            (100.0, update([])),
            (200.0, update([], "For a full our")),
            (300.0, update(["For a"], "full hour")),
            (400.0, update(["For a full"], "hour")),
            (500.0, update(["For a full", "hour"])),
            (900.0, update(["For a full", "hour"])),
        ]
    )
    assert final_text(found) == "For a full hour"
    assert [(t.shown_ms, t.committed_ms) for t in word_timings(found)] == [
        (200.0, 300.0),
        (200.0, 300.0),
        (200.0, 400.0),
        (300.0, 500.0),
    ]
    assert n_erased_words(found) == 1
    assert found[-1].at_ms == 500.0


def test_what_is_left_uncommitted_is_final_with_the_last_update() -> None:
    found = arrivals_from([(100.0, update(["a"], "b")), (300.0, update(["a"], "c"))])
    assert final_text(found) == "a c"
    assert found[-1].at_ms == 300.0


def test_silence_says_nothing() -> None:
    assert arrivals_from([]) == []
    assert arrivals_from([(100.0, update([]))]) == []
