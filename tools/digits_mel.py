"""The front end of Gemma-3n in batches, equal to its feature extractor but in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import Gemma3nAudioFeatureExtractor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

FRAMES_PER_SLOT = 16
_MEL_FLOOR = (
    2e-3  # with the usual 1e-5, digital silence lies far below any sound and rules the mean
)
_MIN_DEVIATION = 1.0  # bins above 4 kHz hardly move: their noise must not be blown up


class LogMel:
    """Log-mel frames of whole batches of equally long waveforms.

    Args:
        extractor: Gives window, filters, pre-emphasis, floor and the per-bin normalisation.
    """

    def __init__(self, extractor: Gemma3nAudioFeatureExtractor) -> None:
        self._extractor = extractor
        self._window = torch.from_numpy(extractor.window)
        self._filters = torch.from_numpy(extractor.mel_filters).float()
        self._mean, self._deviation = torch.zeros(()), torch.ones(())
        if extractor.per_bin_mean is not None:
            self._mean = torch.from_numpy(extractor.per_bin_mean).float()
            self._deviation = torch.from_numpy(extractor.per_bin_stddev).float()

    def __call__(self, waveforms: NDArray[np.float32]) -> Tensor:
        """Return mel frames, shape (batch, frames, bins), of waveforms (batch, samples)."""
        settings = self._extractor
        frames = torch.from_numpy(waveforms).unfold(
            -1, settings.frame_length + 1, settings.hop_length
        )
        first = frames[..., :1] * (1.0 - settings.preemphasis)
        rest = frames[..., 1:-1] - settings.preemphasis * frames[..., :-2]
        windowed = torch.cat([first, rest], dim=-1) * self._window
        magnitude = torch.fft.rfft(windowed, n=settings.fft_length).abs()
        mel = (magnitude @ self._filters).clamp(min=float(settings.mel_floor)).log()
        normalised: Tensor = (mel - self._mean) / self._deviation
        return normalised


def samples_for(n_slots: int) -> int:
    """Return how many samples give exactly ``n_slots`` slots without any padding."""
    return (n_slots * FRAMES_PER_SLOT - 1) * 160 + 513


def normalised_extractor(waveforms: NDArray[np.float32]) -> Gemma3nAudioFeatureExtractor:
    """Return the extractor whose per-bin mean and deviation are those of the waveforms.

    Args:
        waveforms: Shape (batch, samples): strings as they are trained on.
    """
    mel = LogMel(Gemma3nAudioFeatureExtractor(mel_floor=_MEL_FLOOR))(waveforms).flatten(0, 1)
    return Gemma3nAudioFeatureExtractor(
        mel_floor=_MEL_FLOOR,
        per_bin_mean=mel.mean(0).tolist(),
        per_bin_stddev=mel.std(0).clamp(min=_MIN_DEVIATION).tolist(),
    )
