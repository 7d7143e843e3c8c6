from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.snr import AlphaRule, SnrEstimate, alpha_for


def heard(voice_power: float, noise_power: float) -> SnrEstimate:
    estimate = SnrEstimate()
    for _ in range(50):
        estimate.hear(voice_power, is_voice=True)
        estimate.hear(noise_power, is_voice=False)
    return estimate


def test_it_is_unknown_until_both_were_heard() -> None:
    estimate = SnrEstimate()
    assert estimate.snr_db is None
    estimate.hear(1.0, is_voice=True)
    assert estimate.snr_db is None
    estimate.hear(0.1, is_voice=False)
    assert estimate.snr_db is not None


@pytest.mark.parametrize(
    ("voice_power", "noise_power", "snr_db"),
    [(1.01, 0.01, 20.0), (0.2, 0.1, 0.0), (0.1, 0.1, -20.0), (0.0, 0.1, -20.0), (1.0, 0.0, 100.0)],
)
def test_the_noise_within_speech_is_taken_off(
    voice_power: float, noise_power: float, snr_db: float
) -> None:
    assert heard(voice_power, noise_power).snr_db == pytest.approx(snr_db, abs=0.01)


def test_it_follows_a_change_slowly() -> None:
    estimate = heard(1.0, 0.001)
    before = estimate.snr_db
    estimate.hear(0.5, is_voice=False)
    middle = estimate.snr_db
    for _ in range(1000):
        estimate.hear(0.5, is_voice=False)
    assert before is not None
    assert middle is not None
    assert estimate.snr_db is not None
    assert before > middle > estimate.snr_db
    assert estimate.snr_db == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize(
    ("snr_db", "alpha"),
    [(None, 0.3), (-20, 0.5), (0, 0.5), (5, 0.45), (10, 0.4), (20, 0.3), (25, 0.25), (60, 0.2)],
)
def test_alpha_rises_with_the_noise(snr_db: float | None, alpha: float) -> None:
    assert alpha_for(snr_db) == pytest.approx(alpha)


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_alpha_never_falls_with_the_noise(one_db: float, other_db: float) -> None:
    low_db, high_db = sorted((one_db, other_db))
    assert alpha_for(low_db) >= alpha_for(high_db)


def test_a_set_alpha_wins_over_the_estimate() -> None:
    for rule, alpha in ((AlphaRule(), 0.5), (AlphaRule(0.25), 0.25)):
        rule.snr.hear(0.1, is_voice=True)
        rule.snr.hear(0.1, is_voice=False)
        assert rule.alpha == alpha


@pytest.mark.parametrize("alpha", [0.0, 1.1])
def test_an_alpha_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        AlphaRule(alpha)
