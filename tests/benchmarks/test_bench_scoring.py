from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measures import Errors
from benchmarks.recordings import Recording
from benchmarks.scoring import Heard, Summary, score
from tests.benchmarks.making import arrival

WAIT = Recording("wait.wav", Path("wait.wav"), "en", "he could wait")
ENDS = (("he", 200.0), ("could", 400.0), ("wait", 700.0))


def heard(**changes: Any) -> Heard:
    settings: dict[str, Any] = {
        "recording": WAIT,
        "arrivals": [
            arrival(500, "He would"),
            arrival(800, "He could", n_final=1),
            arrival(1400, "He could wait.", is_final=True),
        ],
        "word_ends": ENDS,
        "offline_text": "He could weigh.",
    }
    return Heard(**{**settings, **changes})


def test_one_recording() -> None:
    one = score(heard(end_lag_ms=30.0))
    assert one.text == "He could wait."
    assert one.streaming == Errors(0, 0, 0, 3)
    assert one.offline == Errors(1, 0, 0, 3)
    assert one.shown_ms == [300, 400, 700]
    assert one.committed_ms == [600, 1000, 700]
    assert one.finalised_ms == 700
    assert (one.n_words, one.n_erased, one.n_erased_strict, one.n_changed) == (3, 1, 1, 0)
    assert one.heard_languages == ["en"]
    assert one.as_json()["end_lag_ms"] == 30.0


def test_a_recording_of_which_nothing_was_heard() -> None:
    one = score(heard(arrivals=[]))
    assert one.streaming == Errors(0, 3, 0, 3)
    assert one.finalised_ms is None
    assert one.as_json()["finalisation_latency_ms"] is None
    assert Summary([one]).as_json()["n_without_text"] == 1


def test_a_last_caption_without_words_finalises_nothing() -> None:
    arrivals = [*heard().arrivals, arrival(5000, "", is_final=True, segment=1)]
    assert score(heard(arrivals=arrivals)).finalised_ms == 700


def test_recordings_are_pooled_word_by_word() -> None:
    short = score(heard())
    long = score(heard(arrivals=[arrival(900, "a b c d e f g h i", is_final=True)]))
    summary = Summary([short, long])
    streaming, offline = summary.errors_by_language()["en"]
    assert streaming == short.streaming + long.streaming
    assert offline == Errors(2, 0, 0, 6)
    assert summary.erasure == 1 / 12
    assert summary.shown["n"] == 3  # nothing of the second recording stands opposite
    assert summary.finalised == {"n": 2, "p50": 450.0, "p95": 675.0, "p99": 695.0}
    assert summary.n_changed == 0


def test_each_language_is_scored_by_itself() -> None:
    german = Recording("de.wav", Path("de.wav"), "de", "er wartet")
    summary = Summary([score(heard()), score(heard(recording=german))])
    assert {
        language: found[0].n_reference for language, found in summary.errors_by_language().items()
    } == {"en": 3, "de": 2}
    errors = summary.as_json()["errors"]
    assert isinstance(errors, dict)
    assert errors["de"]["unit"] == "words"
