"""Each speaker's own level of attention, so that a loud voice does not crowd out a quiet one."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Floats

BURST_VALUES = 10
LONG_RUN_MIN_VALUES = 20
MEMORY_VALUES = 3_000
MAX_SPEAKERS = 64
# A spread below this share of the mean says more about rounding than about the speaker.
MIN_RELATIVE_SPREAD = 1e-3


class SpeakerBaseline:
    """Running mean and spread of one speaker's values, restarted by a burst.

    The latest ten values wait outside the long run. When their spread exceeds ``burst_factor``
    times the long run's, the speaker's conditions have changed (a door, another microphone
    distance): the long run is dropped, and with it what came before the burst. Until there is a
    long run again, the latest ten stand in for it, so that a single spike weighs a tenth.

    Args:
        burst_factor: How many times the long-run spread makes a burst; infinite to never restart.

    Raises:
        ValueError: The factor is not over 0.
    """

    def __init__(self, burst_factor: float = 2.0) -> None:
        if not burst_factor > 0:
            raise ValueError(f"the burst factor {burst_factor} is not over 0")
        self.n_restarts = 0
        self._burst_factor = burst_factor
        self._latest: deque[float] = deque()
        self._n_stale = 0
        self._n_values = 0
        self._mean = 0.0
        self._variance = 0.0

    @property
    def mean(self) -> float:
        """Mean of the long run, of the latest values while there is none, 0 before the first."""
        if self._has_long_run:
            return self._mean
        return sum(self._latest) / len(self._latest) if self._latest else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the long run (of the latest values while there is none)."""
        return math.sqrt(self._variance) if self._has_long_run else _spread(self._latest)

    def learn(self, value: float) -> None:
        """Take in one value, finite."""
        self._latest.append(value)
        if len(self._latest) <= BURST_VALUES:
            return
        self._leave(self._latest.popleft())
        if self._has_long_run and _spread(self._latest) > self._burst_factor * self.spread:
            self._restart()

    @property
    def _has_long_run(self) -> bool:
        return self._n_values >= LONG_RUN_MIN_VALUES

    def _leave(self, value: float) -> None:
        if self._n_stale:
            self._n_stale -= 1
            return
        # The count is capped, so that after hours the baseline still follows slow change.
        self._n_values = min(self._n_values + 1, MEMORY_VALUES)
        step = 1.0 / self._n_values
        away = value - self._mean
        self._mean += step * away
        self._variance += step * ((1 - step) * away * away - self._variance)

    def _restart(self) -> None:
        self.n_restarts += 1
        self._n_values = 0
        self._mean = self._variance = 0.0
        # All of the latest but the newest came before the burst was heard.
        self._n_stale = BURST_VALUES - 1


class SpeakerBaselines:
    """One baseline a speaker; the one silent for longest is forgotten past ``MAX_SPEAKERS``.

    Args:
        burst_factor: As for ``SpeakerBaseline``.
    """

    def __init__(self, burst_factor: float = 2.0) -> None:
        self._burst_factor = burst_factor
        self._by_speaker: dict[int, SpeakerBaseline] = {}

    def __len__(self) -> int:
        """Speakers remembered."""
        return len(self._by_speaker)

    def of(self, speaker: int) -> SpeakerBaseline:
        """Return a speaker's baseline, a fresh one if none is remembered."""
        baseline = self._by_speaker.pop(speaker, None) or SpeakerBaseline(self._burst_factor)
        self._by_speaker[speaker] = baseline
        if len(self._by_speaker) > MAX_SPEAKERS:
            del self._by_speaker[next(iter(self._by_speaker))]
        return baseline

    def learn(self, values: Floats, speakers: NDArray[np.int16]) -> None:
        """Take in values with the number of the speaker of each, in time order."""
        for value, speaker in zip(values.tolist(), speakers.tolist(), strict=True):
            self.of(speaker).learn(value)

    def normalize(self, values: Floats, speakers: NDArray[np.int16]) -> Floats:
        """Return how many spreads each value lies above its own speaker's mean."""
        normalized = np.zeros(len(values))
        for speaker in np.flatnonzero(np.bincount(speakers)).tolist():
            baseline = self.of(speaker)
            own = speakers == speaker
            spread = max(baseline.spread, MIN_RELATIVE_SPREAD * abs(baseline.mean))
            normalized[own] = (values[own] - baseline.mean) / spread if spread > 0 else 0.0
        return normalized

    def means(self, speakers: NDArray[np.int16]) -> Floats:
        """Return the mean of the speaker of each slot."""
        means = np.zeros(len(speakers))
        for speaker in np.flatnonzero(np.bincount(speakers)).tolist():
            means[speakers == speaker] = self.of(speaker).mean
        return means


def _spread(values: deque[float]) -> float:
    if not values:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
