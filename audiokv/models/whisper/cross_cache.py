"""The audio cache of a Whisper stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """Which audio slots of a window are held.

    Attributes:
        places: Numbers of the held slots, rising, shape (held,).
        owners: For each slot of the window the index into ``places`` of the one that stands for
            it, -1 where none does, shape (window,); None where every slot stands for itself only.
    """

    places: NDArray[np.intp]
    owners: NDArray[np.intp] | None = None


def nearest_owners(places: NDArray[np.intp], n_window: int, max_merged: int) -> NDArray[np.intp]:
    """Return the ``Holding.owners`` that let each slot be stood for by the nearest held one.

    Args:
        places: Held slots, rising, at least one.
        n_window: Slots of the window.
        max_merged: Most slots that one may stand for, at least 1.
    """
    slots = np.arange(n_window)
    owners = np.searchsorted((places[1:] + places[:-1]) / 2, slots)
    distance = slots - places[owners]
    is_near = (distance > -(max_merged + 1) // 2) & (distance <= (max_merged - 1) // 2)
    return np.where(is_near, owners, -1)


def merged(encoded: torch.Tensor, holding: Holding) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return what the held slots hold, and the logarithm of how many each stands for.

    Args:
        encoded: The window's audio, shape (window, d_model).
        holding: What is held of it.

    Returns:
        Shape (held, d_model), each the mean of the slots it stands for, and shape (held,), or
        None where every slot stands for itself only.
    """
    places = torch.from_numpy(holding.places)
    if holding.owners is None:
        return encoded[places], None
    is_owned = holding.owners >= 0
    owners = torch.from_numpy(holding.owners[is_owned])
    sums = encoded.new_zeros(len(places), encoded.shape[1])
    sums.index_add_(0, owners, encoded[: len(is_owned)][torch.from_numpy(is_owned)])
    counts = torch.bincount(owners, minlength=len(places)).to(encoded)
    return sums / counts[:, None], counts.log()


@dataclass(slots=True)
class CrossCache:
    """Keys and values of the encoded audio: the audio cache of a Whisper stream.

    Attributes:
        keys: One tensor a decoder layer, shape (heads, slots, head size), compute type; the held
            audio slots, then the silence behind the audio.
        values: Likewise.
        n_audio_slots: How many slots the audio has, held or not.
        held: Numbers of the held audio slots, rising; None where all are.
        log_mass: Added to the attention logits, shape (slots,) float32, see ``MergingPolicy``;
            None for nothing.
    """

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    n_audio_slots: int
    held: NDArray[np.intp] | None = None
    log_mass: torch.Tensor | None = None

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
            None if self.log_mass is None else self.log_mass[first:],
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
