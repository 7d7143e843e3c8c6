"""Qwen3-Omni's audio encoder, window by window.

A second of audio (a chunk) is convolved by itself into 13 slots, and the slots of several chunks (a
window, eight seconds in the published models) attend to each other, backwards and forwards. So no
slot is final before its window is full, and a full window depends on nothing outside it: encoded
windows can be appended, smaller pieces cannot.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from audiokv.streaming.errors import ConfigError

MEL_FRAMES_PER_SLOT = 8
_SLOTS_PER_CHUNK = 13  # the class counts them so, whatever its config says


class WindowEncoder:
    """Runs a model's audio encoder on whole windows and on the window that is still open.

    Args:
        tower: The model's ``Qwen3OmniMoeAudioEncoder``, run as it is.

    Raises:
        ConfigError: Its windows are not whole chunks of 13 slots.
    """

    def __init__(self, tower: Any) -> None:  # noqa: ANN401  transformers is not typed
        self._tower = tower
        self.frames_per_chunk: int = 2 * tower.n_window
        self.frames_per_window: int = tower.n_window_infer
        n_slots = -(-self.frames_per_chunk // MEL_FRAMES_PER_SLOT)
        if n_slots != _SLOTS_PER_CHUNK or self.frames_per_window % self.frames_per_chunk:
            raise ConfigError(
                "encoder_windows_unsupported",
                f"The audio encoder has chunks of {self.frames_per_chunk} mel frames in windows "
                f"of {self.frames_per_window}.",
                "Use a model with n_window = 50 and windows of whole chunks, as Qwen3-Omni has.",
            )

    @property
    def dtype(self) -> torch.dtype:
        """Type of its weights."""
        dtype: torch.dtype = self._tower.conv2d1.weight.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        device: torch.device = self._tower.conv2d1.weight.device
        return device

    def encode(self, mel: torch.Tensor, *, has_past: bool) -> torch.Tensor:
        """Encode a window, or what is there of it, as if the audio ended behind it.

        Args:
            mel: Shape (mels, n), n from 1 to ``frames_per_window``.
            has_past: Whether the stream had a chunk before it. Then a short chunk is filled up to
                a whole one, as the class does where a clip has longer ones.

        Returns:
            Shape (1, m, hidden).
        """
        mel = mel.to(self.device, self.dtype)
        chunks = torch.split(mel, self.frames_per_chunk, dim=1)
        lengths = [chunk.shape[1] for chunk in chunks]
        longest = self.frames_per_chunk if has_past else max(lengths)
        padded = torch.stack([pad(chunk, (0, longest - chunk.shape[1])) for chunk in chunks])
        out = self._tower(
            mel,
            feature_lens=torch.tensor([mel.shape[1]], device=self.device),
            padded_feature=padded,
            chunk_lengths=torch.tensor(lengths, device=self.device),
        )
        encoded: torch.Tensor = out.last_hidden_state.unsqueeze(0)
        return encoded
