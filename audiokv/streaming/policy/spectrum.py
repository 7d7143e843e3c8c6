"""Band energies of every 10 ms frame: what boundaries and dialect priors are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from audiokv.streaming.audio_format import FRAME_SAMPLES, SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from audiokv.streaming.policy.arrays import Floats

Samples = NDArray[np.float32]
Bands = NDArray[np.float32]

N_BANDS = 20
LOWEST_HZ = 100.0
HIGHEST_HZ = 7_600.0
WINDOW_SAMPLES = 256
FLOOR_POWER = 1e-8  # -80 dB of full scale: below it there is only converter noise


class BandSpectrum:
    """Turns frames into mel band energies, causally: a frame sees itself and 6 ms before it."""

    def __init__(self) -> None:
        self._before: Samples = np.zeros(WINDOW_SAMPLES - FRAME_SAMPLES, np.float32)
        window = np.hanning(WINDOW_SAMPLES + 1)[:-1]
        self._window = (window / np.sqrt(np.square(window).sum() * WINDOW_SAMPLES / 2)).astype(
            np.float32
        )
        self._filters = _mel_filters().astype(np.float32)

    def push(self, samples: Samples) -> Bands:
        """Return the band energies of the next frames.

        Args:
            samples: Whole frames, shape (n * 160,), 16 kHz mono.

        Returns:
            Shape (n, 20), in dB of full scale, at least -80. The same for any chunking.

        Raises:
            ValueError: The samples are not whole frames.
        """
        if len(samples) % FRAME_SAMPLES:
            raise ValueError(f"{len(samples)} samples are not whole frames of {FRAME_SAMPLES}")
        joined = np.concatenate((self._before, samples), dtype=np.float32)
        self._before = joined[len(joined) - len(self._before) :]
        n_frames = len(samples) // FRAME_SAMPLES
        hop_bytes = FRAME_SAMPLES * joined.itemsize
        # Overlapping windows without a copy; sliding_window_view costs as much as the transform.
        frames: Samples = np.ndarray(
            (n_frames, WINDOW_SAMPLES), joined.dtype, joined, 0, (hop_bytes, joined.itemsize)
        )
        spectrum = np.fft.rfft(frames * self._window, axis=-1)
        power = spectrum.real * spectrum.real + spectrum.imag * spectrum.imag
        bands: Bands = 10 * np.log10(power @ self._filters + np.float32(FLOOR_POWER))
        return bands


def _mel_filters() -> Floats:
    """Return triangular filters, shape (129, 20), each with its peak at a mel-spaced centre."""
    edges_mel = np.linspace(_mel(LOWEST_HZ), _mel(HIGHEST_HZ), N_BANDS + 2)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    bins_hz = np.arange(WINDOW_SAMPLES // 2 + 1)[:, None] * (SAMPLE_RATE_HZ / WINDOW_SAMPLES)
    low, centre, high = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising = (bins_hz - low) / (centre - low)
    falling = (high - bins_hz) / (high - centre)
    filters: Floats = np.maximum(0.0, np.minimum(rising, falling))
    return filters


def _mel(frequency_hz: float) -> float:
    return float(2595 * np.log10(1 + frequency_hz / 700))
