"""The audio cache of a Whisper stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True)
class CrossCache:
    """Keys and values of the encoded audio: the audio cache of a Whisper stream.

    Attributes:
        keys: One tensor a decoder layer, shape (heads, slots, head size), compute type; the held
            audio slots, then the silence behind the audio.
        values: Likewise.
        n_audio_slots: How many slots the audio has, held or not.
        held: Numbers of the held audio slots, rising; None where all are.
    """

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    n_audio_slots: int
    held: NDArray[np.intp] | None = None

    def since(self, slot: int) -> CrossCache:
        """Return the part from an audio slot on, sharing memory."""
        first, held = slot, self.held
        if held is not None:
            first = int(np.searchsorted(held, slot))
            held = held[first:] - slot
        return CrossCache(
            [k[:, first:] for k in self.keys],
            [v[:, first:] for v in self.values],
            self.n_audio_slots - slot,
            held,
        )

    def by_time(self, attention: torch.Tensor) -> torch.Tensor:
        """Return attention over the cache as attention over the audio; 0 where nothing is held.

        Args:
            attention: Shape (..., slots).

        Returns:
            Shape (..., n_audio_slots).
        """
        if self.held is None:
            return attention[..., : self.n_audio_slots]
        spread = attention.new_zeros(*attention.shape[:-1], self.n_audio_slots)
        spread[..., torch.from_numpy(self.held)] = attention[..., : len(self.held)]
        return spread
