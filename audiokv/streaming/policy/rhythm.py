"""Speech rhythm: when people pause, and how much arrives before they pause again."""

from __future__ import annotations

import math
from collections import deque

from audiokv.streaming.policy.arrays import slots_for

REMEMBERED_STRETCHES = 32


class RhythmPredictor:
    """Learns the lengths of speech between pauses and predicts the next one.

    A stretch runs from the first voiced slot to the pause after it, its short gaps included, for
    all of its slots need room. The prediction is a high quantile of the latest 32 stretches, so
    that it is seldom too short.

    Args:
        slot_ms: Length of one slot.
        pause_ms: Silence of this length is a pause.
        quantile: Share of stretches that should be no longer than predicted, over 0 and up to 1.
        first_guess_ms: Prediction before the first pause.

    Raises:
        ValueError: The quantile is out of range, or a length is negative.
    """

    def __init__(
        self,
        slot_ms: int,
        pause_ms: int = 200,
        quantile: float = 0.9,
        first_guess_ms: int = 3_000,
    ) -> None:
        if not 0 < quantile <= 1:
            raise ValueError(f"the quantile {quantile} is not over 0 and up to 1")
        self._pause_slots = slots_for(pause_ms, slot_ms)
        self._quantile = quantile
        self._first_guess_slots = slots_for(first_guess_ms, slot_ms)
        self._stretches: deque[int] = deque(maxlen=REMEMBERED_STRETCHES)
        self._stretch_slots = 0
        self._quiet_slots = self._pause_slots

    @property
    def is_pause(self) -> bool:
        """Whether nobody has spoken for the length of a pause; so before the first word."""
        return self._quiet_slots >= self._pause_slots

    @property
    def expected_slots(self) -> int:
        """Slots from the next word up to and with the pause after it, by which one can evict."""
        if not self._stretches:
            return self._first_guess_slots + self._pause_slots
        ordered = sorted(self._stretches)
        return ordered[math.ceil(self._quantile * len(ordered)) - 1] + self._pause_slots

    def hear(self, *, is_voice: bool) -> None:
        """Take in the next slot."""
        if is_voice:
            # A gap shorter than a pause belongs to the stretch around it.
            gap_slots = 0 if self.is_pause else self._quiet_slots
            self._stretch_slots += gap_slots + 1
            self._quiet_slots = 0
            return
        self._quiet_slots += 1
        if self._quiet_slots == self._pause_slots:
            self._stretches.append(self._stretch_slots)
            self._stretch_slots = 0
