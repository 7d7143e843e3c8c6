from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Keeping, SlotMarks
from audiokv.streaming.policy.scoring import Scorer
from audiokv.streaming.policy.smoothing import MedianTrendSmoother, NoSmoother, SpectralSmoother

if TYPE_CHECKING:
    from audiokv.streaming.policy.protocol import Smoother
    from tests.streaming.policy.conftest import LedgerBuilder


def observed(marks: list[SlotMarks], weights: list[float], scorer: Scorer) -> SlotLedger:
    ledger = SlotLedger(n_sinks=0)
    ledger.append(marks)
    ledger.attention.observe(np.array(weights), 0.3)
    scorer.learn(ledger)
    return ledger


def voiced(n_slots: int, **marks: object) -> list[SlotMarks]:
    return [SlotMarks(at * 20, at * 20 + 20, **marks) for at in range(n_slots)]  # type: ignore[arg-type]


@given(
    st.integers(0, 60),
    st.integers(0, 10**6),
    st.sampled_from([NoSmoother(), MedianTrendSmoother(), SpectralSmoother()]),
)
def test_scores_are_positive_for_audio_and_zero_for_the_prompt(
    build_ledger: LedgerBuilder, n_slots: int, seed: int, smoother: Smoother
) -> None:
    ledger = build_ledger(n_slots, seed)
    scorer = Scorer(smoother)
    scorer.learn(ledger)
    scores = scorer.score(ledger)
    is_prompt = ledger.keeping == Keeping.PROMPT
    assert (scores[is_prompt] == 0).all()
    assert (scores[~is_prompt] > 0).all()
    assert np.isfinite(scores).all()


def test_more_attention_scores_higher() -> None:
    scorer = Scorer(NoSmoother())
    ledger = observed(voiced(30), [at / 30 for at in range(30)], scorer)
    assert (np.diff(scorer.score(ledger)) > 0).all()


@pytest.mark.parametrize("voice_weight", [0.0, 0.5, 1.0])
def test_voice_raises_a_score_by_its_weight_wherever_it_stands(voice_weight: float) -> None:
    marks = [SlotMarks(at * 20, at * 20 + 20, is_voice=at % 2 == 0) for at in range(40)]
    scorer = Scorer(NoSmoother(), voice_weight=voice_weight)
    scores = scorer.score(observed(marks, np.repeat(np.arange(20.0), 2).tolist(), scorer))
    assert scores[0::2] == pytest.approx(scores[1::2] * (1 + voice_weight))


def test_the_prior_multiplies() -> None:
    marks = [SlotMarks(at * 20, at * 20 + 20, prior=1.0 + at % 2) for at in range(40)]
    scorer = Scorer(NoSmoother())
    scores = scorer.score(observed(marks, np.repeat(np.arange(20.0), 2).tolist(), scorer))
    assert scores[1::2] == pytest.approx(scores[0::2] * 2)


def test_the_smoother_is_the_one_given() -> None:
    weights = (np.random.default_rng(0).random(50) ** 3).tolist()
    by_smoother = []
    for smoother in (NoSmoother(), MedianTrendSmoother(3), SpectralSmoother()):
        scorer = Scorer(smoother)
        by_smoother.append(scorer.score(observed(voiced(50), weights, scorer)))
    assert not np.allclose(by_smoother[0], by_smoother[1])
    assert not np.allclose(by_smoother[0], by_smoother[2])
    assert not np.allclose(by_smoother[1], by_smoother[2])


def test_each_speaker_is_measured_by_their_own_baseline() -> None:
    rng = np.random.default_rng(0)
    marks = [
        SlotMarks(at * 20, at * 20 + 20, speaker=("loud", "soft")[at % 2]) for at in range(200)
    ]
    weights = np.where(np.arange(200) % 2 == 0, 10.0, 0.1) * (1 + 0.1 * rng.random(200))
    with_speakers, as_one = Scorer(NoSmoother()), Scorer(NoSmoother())
    apart = with_speakers.score(observed(marks, weights.tolist(), with_speakers))
    together = as_one.score(observed(voiced(200), weights.tolist(), as_one))
    assert apart[0::2].mean() == pytest.approx(apart[1::2].mean(), rel=0.1)
    assert together[0::2].mean() > 2 * together[1::2].mean()


def test_a_slot_no_probe_has_seen_stands_at_its_speakers_mean() -> None:
    scorer = Scorer(NoSmoother(), voice_weight=0.0)
    ledger = observed(voiced(40), np.linspace(0, 1, 40).tolist(), scorer)
    ledger.append([SlotMarks(800, 820)])
    scores = scorer.score(ledger)
    assert scores[-1] == pytest.approx(0.5)
    assert scores[0] < 0.5 < scores[39]


def test_baselines_learn_each_slot_once_and_no_prompt() -> None:
    scorer = Scorer()
    ledger = observed([SlotMarks(0, 0, is_prompt=True), *voiced(5)], [99.0, *[1.0] * 5], scorer)
    ledger.attention.observe(np.full(6, 7.0), 0.3)
    scorer.learn(ledger)
    assert scorer.baselines.of(0).mean == pytest.approx(1.0)


def test_a_negative_voice_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="voice weight"):
        Scorer(voice_weight=-0.1)
