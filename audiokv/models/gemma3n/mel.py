"""Gemma-3n's log-mel front end, each frame computed once.

The definition is that of transformers' ``Gemma3nAudioFeatureExtractor`` without its padding: a
frame waits for 513 samples, is pre-emphasised within itself, and knows nothing of its neighbours.
Models: Universal Speech Model (Zhang et al., 2023).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

SETTINGS_FILES = ("preprocessor_config.json", "processor_config.json")
MAX_FRAMES_AT_ONCE = 1024  # a frame takes 8 kB on the way; hours at once must not take gigabytes


class MelFrontEnd:
    """The constants of one model's front end.

    Attributes:
        n_left_samples: Silence before a stream's first sample.

    Args:
        extractor: A ``Gemma3nAudioFeatureExtractor``; only its settings are read.

    Raises:
        ConfigError: It wants another sample rate, or random dither.
    """

    n_left_samples = 0

    def __init__(self, extractor: Any) -> None:  # noqa: ANN401  transformers is not typed
        if extractor.sampling_rate != SAMPLE_RATE_HZ or extractor.dither:
            raise ConfigError(
                "front_end_unsupported",
                f"The model's front end works at {extractor.sampling_rate} Hz with a dither of "
                f"{extractor.dither}.",
                f"Use a model for {SAMPLE_RATE_HZ} Hz without dither.",
            )
        self.hop_samples: int = extractor.hop_length
        self.frame_samples: int = extractor.frame_length + 1  # one more than the window takes
        self.n_mels: int = extractor.mel_filters.shape[1]
        self._n_fft: int = extractor.fft_length
        self._window: Floats = extractor.window
        self._filters = extractor.mel_filters
        self._floor = float(extractor.mel_floor)
        self._scale = float(extractor.input_scale_factor)
        self._preemphasis = float(extractor.preemphasis)
        self._is_htk = bool(extractor.preemphasis_htk_flavor)
        mean, deviation = extractor.per_bin_mean, extractor.per_bin_stddev
        self._mean = None if mean is None else np.asarray(mean).reshape(1, -1)
        self._deviation = None if deviation is None else np.asarray(deviation).reshape(1, -1)

    @classmethod
    def from_folder(cls, folder: Path) -> MelFrontEnd:
        """Read a model's front end; without a settings file it is Gemma-3n's.

        Raises:
            ConfigError: It is not one that can be streamed.
            ValueError: A settings file cannot be read.
        """
        from transformers import Gemma3nAudioFeatureExtractor  # noqa: PLC0415  slow to import

        for name in SETTINGS_FILES:
            if (folder / name).exists():
                settings = json.loads((folder / name).read_text("utf-8"))
                return cls(
                    Gemma3nAudioFeatureExtractor(**settings.get("feature_extractor", settings))
                )
        return cls(Gemma3nAudioFeatureExtractor())

    def n_frames(self, n_samples: int) -> int:
        """Return how many whole frames some audio has."""
        return max(0, (n_samples - self.frame_samples) // self.hop_samples + 1)

    def log_mel(self, samples: Floats) -> Floats:
        """Return the frames of some audio, shape (n_frames, n_mels)."""
        n_frames = self.n_frames(len(samples))
        if not n_frames:
            return np.empty((0, self.n_mels), np.float32)
        scaled = samples * np.float32(self._scale) if self._scale != 1.0 else samples
        windows = np.lib.stride_tricks.sliding_window_view(scaled, self.frame_samples)
        frames = windows[: (n_frames - 1) * self.hop_samples + 1 : self.hop_samples]
        parts = [
            self._of_frames(frames[first : first + MAX_FRAMES_AT_ONCE])
            for first in range(0, n_frames, MAX_FRAMES_AT_ONCE)
        ]
        return np.concatenate(parts)

    def _of_frames(self, frames: Floats) -> Floats:
        emphasised = self._emphasised(frames) * self._window
        magnitudes = np.abs(np.fft.rfft(emphasised, n=self._n_fft, axis=-1))
        log_mel = self._logarithm(magnitudes @ self._filters, self._floor)
        if self._mean is not None:
            log_mel = log_mel - self._mean
        if self._deviation is not None:
            log_mel = log_mel / self._deviation
        narrow: Floats = log_mel.astype(np.float32)
        return narrow

    @staticmethod
    def _logarithm(mel: NDArray[np.floating[Any]], floor: float) -> NDArray[np.floating[Any]]:
        logarithm: NDArray[np.floating[Any]] = np.log(np.maximum(mel, floor))
        return logarithm

    def _emphasised(self, frames: Floats) -> Floats:
        factor = np.float32(self._preemphasis)
        if not factor:
            return frames[:, :-1]
        if not self._is_htk:
            return frames[:, 1:] - factor * frames[:, :-1]
        first = frames[:, :1] * np.float32(1.0 - self._preemphasis)
        return np.concatenate((first, frames[:, 1:-1] - factor * frames[:, :-2]), axis=1)


class IncrementalMel:
    """The frames of a stream as its audio comes in, the same for any chunking.

    Args:
        front_end: The model's front end.
    """

    def __init__(self, front_end: MelFrontEnd) -> None:
        self._front_end = front_end
        # From the next frame's first sample on.
        self._samples: Floats = np.zeros(front_end.n_left_samples, np.float32)

    def push(self, samples: Floats) -> Floats:
        """Take audio and return the frames it completes.

        Args:
            samples: Shape (n,), 16 kHz mono, directly following the push before.

        Returns:
            Shape (n_frames, n_mels).
        """
        held = np.concatenate((self._samples, samples))
        frames = self._front_end.log_mel(held)
        self._samples = held[len(frames) * self._front_end.hop_samples :]
        return frames

    def copy(self) -> IncrementalMel:
        """Return the same state, to go on from twice."""
        made = IncrementalMel(self._front_end)
        made._samples = self._samples
        return made

    def reset(self) -> None:
        """Forget the stream."""
        self._samples = np.zeros(self._front_end.n_left_samples, np.float32)
