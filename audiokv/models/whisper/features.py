"""Log-mel features of a growing window, each column computed once."""

from __future__ import annotations

import torch

N_FFT = 400
HOP_SAMPLES = 160
LOG_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0  # decades below the loudest bin that are kept
_EDGE = N_FFT // 2
_GROWTH_SAMPLES = 16_000


class IncrementalLogMel:
    """Log-mel columns of a window of audio that grows at its end and shrinks at its start.

    Column t is centred on sample 160 t and sees 200 samples on either side, so the last two columns
    wait for later audio; ``features`` completes them with the silence that pads the window.
    Definition: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022).

    Args:
        filters: Mel filter bank of shape (n_mels, 201).
    """

    def __init__(self, filters: torch.Tensor) -> None:
        self._filters = filters
        self._hann = torch.hann_window(N_FFT)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._audio = torch.zeros(_EDGE + _GROWTH_SAMPLES)
        self.n_samples = 0
        self._columns = torch.zeros(self._filters.shape[0], 0)

    def append(self, samples: torch.Tensor) -> None:
        """Add audio of shape (n,), 16 kHz float32, at the end of the window."""
        end = _EDGE + self.n_samples + samples.numel()
        if end > self._audio.numel():
            grown = torch.zeros(end + _GROWTH_SAMPLES)
            grown[: _EDGE + self.n_samples] = self._audio[: _EDGE + self.n_samples]
            self._audio = grown
        self._audio[end - samples.numel() : end] = samples
        self.n_samples += samples.numel()
        done = self._columns.shape[1]
        ready = (self.n_samples - _EDGE) // HOP_SAMPLES + 1 if self.n_samples >= _EDGE else 0
        if ready > done:
            first = done * HOP_SAMPLES
            span = self._audio[first : first + (ready - 1 - done) * HOP_SAMPLES + N_FFT]
            self._columns = torch.cat([self._columns, self._log_mel(span)], dim=1)

    def drop(self, n_columns: int) -> None:
        """Remove the oldest columns and their audio (160 samples each)."""
        n_samples = n_columns * HOP_SAMPLES
        kept = self._audio[n_samples : _EDGE + self.n_samples].clone()
        self.n_samples -= n_samples
        self._audio = torch.zeros(_EDGE + self.n_samples + _GROWTH_SAMPLES)
        self._audio[: kept.numel()] = kept
        self._columns = self._columns[:, n_columns:].clone()

    def features(self, n_columns: int) -> torch.Tensor:
        """Return the window, padded with silence or cut to a number of columns.

        Returns:
            Shape (n_mels, n_columns), scaled as Whisper's encoder expects.
        """
        done = self._columns.shape[1]
        parts = [self._columns]
        wanted = min(n_columns, (self.n_samples + _EDGE - 1) // HOP_SAMPLES + 1)
        if wanted > done:
            first = done * HOP_SAMPLES
            tail = torch.zeros((wanted - 1 - done) * HOP_SAMPLES + N_FFT)
            heard = self._audio[first : _EDGE + self.n_samples][: tail.numel()]
            tail[: heard.numel()] = heard
            parts.append(self._log_mel(tail))
        mel = torch.cat(parts, dim=1)[:, :n_columns]
        if mel.shape[1] < n_columns:
            mel = torch.nn.functional.pad(
                mel,
                (0, n_columns - mel.shape[1]),
                value=-10.0,  # log10 of the floor
            )
        mel = torch.maximum(mel, mel.max() - DYNAMIC_RANGE)
        return (mel + 4.0) / 4.0

    def _log_mel(self, audio: torch.Tensor) -> torch.Tensor:
        frames = audio.unfold(0, N_FFT, HOP_SAMPLES) * self._hann
        power = torch.fft.rfft(frames).abs().square()
        log_mel: torch.Tensor = (self._filters @ power.T).clamp(min=LOG_FLOOR).log10()
        return log_mel


def mel_filters(n_mels: int) -> torch.Tensor:
    """Return the Slaney-scaled filter bank of Whisper's front end, shape (n_mels, 201)."""
    from transformers.audio_utils import mel_filter_bank  # noqa: PLC0415  slow to import

    bank = mel_filter_bank(
        num_frequency_bins=1 + N_FFT // 2,
        num_mel_filters=n_mels,
        min_frequency=0.0,
        max_frequency=8000.0,
        sampling_rate=16_000,
        norm="slaney",
        mel_scale="slaney",
    )
    return torch.from_numpy(bank.T.astype("float32")).contiguous()
