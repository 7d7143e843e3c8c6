"""Running signal-to-noise estimate, and how fast importance should follow the attention."""

from __future__ import annotations

import math

# Importance follows faster in noise, where a slot's first attention says little.
SNR_POINTS_DB = (0.0, 10.0, 20.0, 30.0)
ALPHA_POINTS = (0.5, 0.4, 0.3, 0.2)
DEFAULT_ALPHA = 0.3
FORGETTING_SLOTS = 200.0
FLOOR_POWER = 1e-10


class SnrEstimate:
    """Mean power of voiced and of unvoiced slots, each over about the latest 200."""

    def __init__(self) -> None:
        self._voice_power: float | None = None
        self._noise_power: float | None = None

    @property
    def snr_db(self) -> float | None:
        """Ratio of speech to noise in dB, at least -20; None until both have been heard."""
        if self._voice_power is None or self._noise_power is None:
            return None
        noise = max(self._noise_power, FLOOR_POWER)
        # Voiced slots hold the noise too.
        return 10 * math.log10(max(self._voice_power - noise, 0.01 * noise) / noise)

    def hear(self, power: float, *, is_voice: bool) -> None:
        """Take in the mean power of one slot's samples."""
        if is_voice:
            self._voice_power = _follow(self._voice_power, power)
        else:
            self._noise_power = _follow(self._noise_power, power)


class AlphaRule:
    """Picks alpha from the running estimate unless it is set.

    Args:
        fixed: Alpha to use always, over 0 and up to 1, or None.

    Raises:
        ValueError: ``fixed`` is out of range.
    """

    def __init__(self, fixed: float | None = None) -> None:
        if fixed is not None and not 0 < fixed <= 1:
            raise ValueError(f"alpha {fixed} is not over 0 and up to 1")
        self.snr = SnrEstimate()
        self._fixed = fixed

    @property
    def alpha(self) -> float:
        """Weight of new attention now."""
        return alpha_for(self.snr.snr_db) if self._fixed is None else self._fixed


def alpha_for(snr_db: float | None) -> float:
    """Return the weight of new attention: 0.2 in clear speech to 0.5 in noise, 0.3 if unknown."""
    if snr_db is None:
        return DEFAULT_ALPHA
    if snr_db <= SNR_POINTS_DB[0]:
        return ALPHA_POINTS[0]
    for place in range(1, len(SNR_POINTS_DB)):
        if snr_db <= SNR_POINTS_DB[place]:
            low_db, high_db = SNR_POINTS_DB[place - 1 : place + 1]
            above, below = ALPHA_POINTS[place - 1 : place + 1]
            return above + (below - above) * (snr_db - low_db) / (high_db - low_db)
    return ALPHA_POINTS[-1]


def _follow(mean: float | None, value: float) -> float:
    return value if mean is None else mean + (value - mean) / FORGETTING_SLOTS
