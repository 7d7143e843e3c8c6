from __future__ import annotations

import numpy as np
import pytest

from audiokv.models.whisper.language import LanguageTracker

CODES = ["en", "de", "zh"]


def logits(code: str, probability: float) -> np.ndarray:
    others = (1 - probability) / (len(CODES) - 1)
    return np.log([probability if c == code else others for c in CODES]).astype(np.float32)


def heard(
    tracker: LanguageTracker, code: str, times: int = 1, *, sure: float = 0.97, voice_ms: int = 3000
) -> LanguageTracker:
    for _ in range(times):
        tracker.observe(logits(code, sure), voice_ms)
    return tracker


@pytest.fixture
def tracker() -> LanguageTracker:
    return LanguageTracker(CODES, None)


def settled(tracker: LanguageTracker) -> bool:
    """Ask anew: a type checker would take the property for a constant."""
    return tracker.is_settled


def test_nothing_is_known_at_first(tracker: LanguageTracker) -> None:
    assert tracker.current is None
    assert not settled(tracker)
    assert tracker.confidence == 0
    assert tracker.wants(0)


def test_the_likeliest_is_current_and_believed_once_it_came_back(
    tracker: LanguageTracker,
) -> None:
    heard(tracker, "de", sure=0.6)
    assert tracker.current == "de"
    assert tracker.confidence == pytest.approx(0.3, abs=1e-6)
    heard(tracker, "de", sure=0.6)
    assert tracker.confidence == pytest.approx(0.6, abs=1e-6)
    heard(tracker, "zh", sure=0.7)
    assert tracker.current == "zh"
    assert tracker.confidence == pytest.approx(0.35, abs=1e-6)
    assert not settled(tracker)


def test_large_logits_do_not_overflow(tracker: LanguageTracker) -> None:
    tracker.observe(np.array([900.0, 1000.0, -1000.0], dtype=np.float32), 500)
    assert tracker.current == "de"
    assert tracker.confidence == pytest.approx(0.5)


def test_three_sure_observations_in_a_row_lock(tracker: LanguageTracker) -> None:
    heard(tracker, "de", 2)
    assert not settled(tracker)
    heard(tracker, "de")
    assert settled(tracker)
    assert tracker.confidence == 1.0
    heard(tracker, "en", sure=0.6)
    assert tracker.current == "de"


@pytest.mark.parametrize(
    "between", [("de", 0.8, 3000), ("de", 0.97, 700), ("en", 0.97, 3000), ("en", 0.5, 3000)]
)
def test_doubt_in_between_starts_the_count_anew(
    tracker: LanguageTracker, between: tuple[str, float, int]
) -> None:
    code, sure, voice_ms = between
    heard(tracker, "de", 2)
    heard(tracker, code, sure=sure, voice_ms=voice_ms)
    heard(tracker, "de", 2)
    assert not settled(tracker)
    heard(tracker, "de")
    assert settled(tracker)


def test_short_audio_never_locks(tracker: LanguageTracker) -> None:
    heard(tracker, "de", 20, voice_ms=799)
    assert tracker.current == "de"
    assert not settled(tracker)


def test_committed_text_settles_the_current_language(tracker: LanguageTracker) -> None:
    heard(tracker, "zh", sure=0.5)
    tracker.settle()
    assert settled(tracker)
    heard(tracker, "en", sure=0.8)
    tracker.settle()
    assert tracker.current == "zh"


def test_settling_without_evidence_settles_nothing(tracker: LanguageTracker) -> None:
    tracker.settle()
    assert not settled(tracker)


def test_a_confident_change_reopens_a_locked_language(tracker: LanguageTracker) -> None:
    heard(tracker, "de", 3)
    heard(tracker, "en", 2)
    assert tracker.current == "de"
    heard(tracker, "en")
    assert tracker.current == "en"
    assert settled(tracker)


def test_a_new_segment_is_judged_anew_in_favour_of_the_language_so_far(
    tracker: LanguageTracker,
) -> None:
    heard(tracker, "de", 3)
    tracker.begin_segment()
    assert tracker.current == "de"
    assert not settled(tracker)
    # Twice as likely as the home language is not enough, ten times is.
    tracker.observe(np.log(np.array([0.6, 0.3, 0.1], dtype=np.float32)), 1000)
    assert tracker.current == "de"
    tracker.observe(np.log(np.array([0.9, 0.09, 0.01], dtype=np.float32)), 1200)
    assert tracker.current == "en"


def test_text_in_doubt_does_not_become_the_home_language(tracker: LanguageTracker) -> None:
    heard(tracker, "de", 3)
    tracker.begin_segment()
    heard(tracker, "zh", sure=0.7)
    tracker.settle()
    assert settled(tracker)
    tracker.begin_segment()
    assert tracker.current == "de"


def test_once_locked_only_the_start_of_a_segment_is_listened_to(tracker: LanguageTracker) -> None:
    assert tracker.wants(60_000)
    heard(tracker, "de", 3)
    assert tracker.wants(2_000)
    assert not tracker.wants(60_000)


def test_a_chosen_language_overrides_what_is_heard() -> None:
    tracker = LanguageTracker(CODES, "zh")
    assert tracker.current == "zh"
    assert settled(tracker)
    assert tracker.confidence == 1.0
    assert not tracker.wants(0)
    heard(tracker, "de", 5)
    assert tracker.current == "zh"


def test_choosing_overrides_a_locked_language(tracker: LanguageTracker) -> None:
    heard(tracker, "de", 3)
    tracker.choose("en")
    assert tracker.current == "en"
    assert not tracker.wants(0)


def test_choosing_none_detects_anew(tracker: LanguageTracker) -> None:
    heard(tracker, "de", 3)
    tracker.choose("en")
    tracker.choose(None)
    now: str | None = tracker.current
    assert now is None
    assert not settled(tracker)
    heard(tracker, "zh", 2)
    assert not settled(tracker)
    heard(tracker, "zh")
    assert tracker.current == "zh"
    assert settled(tracker)


@pytest.mark.parametrize("chosen", [None, "zh"])
def test_choosing_the_same_again_forgets_nothing(chosen: str | None) -> None:
    tracker = LanguageTracker(CODES, chosen)
    heard(tracker, "de", 3)
    before = tracker.current
    tracker.choose(chosen)
    assert tracker.current == before
    assert settled(tracker)


def test_long_speech_settles_on_the_likeliest_even_in_doubt(tracker: LanguageTracker) -> None:
    heard(tracker, "zh", 30, sure=0.6, voice_ms=7_900)
    assert not settled(tracker)
    heard(tracker, "de", sure=0.6, voice_ms=8_000)
    assert settled(tracker)
    assert tracker.current == "de"
    heard(tracker, "zh", sure=0.6, voice_ms=8_200)
    assert tracker.current == "de"
