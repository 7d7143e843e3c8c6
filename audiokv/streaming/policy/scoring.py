"""From attention to the score a policy goes by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.marks import Keeping
from audiokv.streaming.policy.smoothing import MedianTrendSmoother
from audiokv.streaming.policy.snr import AlphaRule
from audiokv.streaming.policy.speaker_baseline import SpeakerBaselines

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats
    from audiokv.streaming.policy.ledger import SlotLedger
    from audiokv.streaming.policy.protocol import Smoother


@dataclass(slots=True)
class Scorer:
    """Scores slots: smoothed importance against the speaker's baseline, times voice and dialect.

    ``score = logistic((smoothed - mean) / spread) * (1 + voice_weight*is_voice) * prior``. The
    logistic keeps scores positive, so that voice always raises them; without it a voiced slot
    below its speaker's mean would lose by being voiced. A slot no probe has seen stands at its
    speaker's mean.

    Attributes:
        smoother: Runs along the audio slots, prompt left out.
        baselines: One a speaker, learnt from the first attention each slot receives.
        voice_weight: How much voice raises a score.
        rate: How fast importance follows attention.

    Raises:
        ValueError: The voice weight is negative.
    """

    smoother: Smoother = field(default_factory=MedianTrendSmoother)
    baselines: SpeakerBaselines = field(default_factory=SpeakerBaselines)
    voice_weight: float = 0.5
    rate: AlphaRule = field(default_factory=AlphaRule)

    def __post_init__(self) -> None:
        """Refuse a weight that turns voice against itself."""
        if self.voice_weight < 0:
            raise ValueError(f"the voice weight {self.voice_weight} is not at least 0")

    def learn(self, ledger: SlotLedger) -> None:
        """Teach the baselines the slots the latest probe saw for the first time."""
        attention = ledger.attention
        first = np.flatnonzero((attention.n_observed == 1) & (ledger.keeping != Keeping.PROMPT))
        self.baselines.learn(attention.importance[first], ledger.speaker[first])

    def score(self, ledger: SlotLedger) -> Floats:
        """Return the scores of all held slots, shape (held,), positive; prompt slots have 0."""
        audio = np.flatnonzero(ledger.keeping != Keeping.PROMPT)
        speakers = ledger.speaker[audio]
        importance = np.where(
            ledger.attention.is_observed[audio],
            ledger.attention.importance[audio],
            self.baselines.means(speakers),
        )
        relative = self.baselines.normalize(self.smoother.smooth(importance), speakers)
        # The tanh form does not overflow far below the mean.
        standing = 0.5 + 0.5 * np.tanh(0.5 * np.clip(relative, -30.0, 30.0))
        scores = np.zeros(ledger.held)
        scores[audio] = (
            standing * (1.0 + self.voice_weight * ledger.is_voice[audio]) * ledger.prior[audio]
        )
        return scores
