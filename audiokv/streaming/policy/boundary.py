"""Phoneme boundaries as sudden changes of the spectrum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Mask
    from audiokv.streaming.policy.spectrum import Bands

LOOKBACK_FRAMES = 3
REFRACTORY_FRAMES = 4  # no phoneme is shorter
FOLLOWING_FRAMES = 100.0


class BoundaryDetector:
    """Marks frames at which the spectrum changes more than it usually does. Causal.

    The change is the mean absolute difference between the mean of the latest two frames' bands
    and that of the two before them. A boundary is a change over a fixed least and over a multiple
    of its running mean of about a second; then the detector rests for three frames.

    Args:
        min_change_db: Least change that counts.
        contrast: Least ratio to the running mean that counts.

    Raises:
        ValueError: A threshold is not over 0.
    """

    def __init__(self, min_change_db: float = 4.0, contrast: float = 1.3) -> None:
        if not (min_change_db > 0 and contrast > 0):
            raise ValueError("the thresholds of the boundary detector must be over 0")
        self._min_change_db = min_change_db
        self._contrast = contrast
        self._before: Bands | None = None
        self._half_mean = np.empty(0, np.float32)
        self._usual_db = min_change_db / contrast
        self._resting_frames = 0

    def push(self, bands: Bands) -> Mask:
        """Say of the next frames whether a boundary lies in them.

        Args:
            bands: Band energies in dB, shape (n, bands).

        Returns:
            Shape (n,); the same for any chunking.
        """
        if self._before is None:
            self._before = np.repeat(bands[:1], LOOKBACK_FRAMES, axis=0)
            self._half_mean = np.full(bands.shape[1], 0.5 / bands.shape[1], np.float32)
        joined = np.concatenate((self._before, bands))
        self._before = joined[-LOOKBACK_FRAMES:] if len(joined) else None
        pairs = joined[1:] + joined[:-1]
        change_db = np.abs(pairs[2:] - pairs[:-2]) @ self._half_mean
        return np.array([self._is_boundary(change) for change in change_db.tolist()], np.bool_)

    def _is_boundary(self, change_db: float) -> bool:
        threshold_db = max(self._min_change_db, self._contrast * self._usual_db)
        self._usual_db += (change_db - self._usual_db) / FOLLOWING_FRAMES
        if self._resting_frames:
            self._resting_frames -= 1
            return False
        if change_db < threshold_db:
            return False
        self._resting_frames = REFRACTORY_FRAMES - 1
        return True
