"""What a layer tells the attention function about the keys that it hands out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Number = TypeVar("Number", np.int64, np.float32)

# Position of the rows that pad a head with fewer slots than its neighbours.
NO_SLOT = np.iinfo(np.int64).max

# Name under which a readout travels on the tensor of keys. A layer that shares the keys of
# another is handed the same tensor, so it finds the readout too.
_ATTRIBUTE = "audiokv_readout"


@dataclass(frozen=True, slots=True)
class Readout:
    """Positions and multiplicities of the rows of a tensor of keys.

    Attributes:
        positions: Shape (rows,), or (key_heads, rows) where heads hold different slots; `NO_SLOT`
            where a row pads.
        log_multiplicity: As `positions`, added to the logits; None where every slot counts once.
        end: Position after the last query of this step, or None where every query sees every row
            (cross-attention).
        shifted: How far positions were moved back so far; padding masks count from the beginning.
        n_probed: How many of the step's last queries the cache wants the weights of.
        attended: Called after each attention over these keys, with the index of the layer that
            attended (the producer of the keys or one that shares them) and the weights wanted, as
            `attention_weights` gives them.
    """

    positions: NDArray[np.int64]
    log_multiplicity: NDArray[np.float32] | None
    end: int | None
    shifted: int
    n_probed: int
    attended: Callable[[int, torch.Tensor | None], None]

    def attach(self, keys: torch.Tensor) -> torch.Tensor:
        """Mark a tensor of keys as described by this readout."""
        setattr(keys, _ATTRIBUTE, self)
        return keys

    @staticmethod
    def of(keys: torch.Tensor) -> Readout | None:
        """Return the readout of a tensor of keys, or None where it is not one of ours."""
        readout: Readout | None = getattr(keys, _ATTRIBUTE, None)
        return readout

    def mask(self, query: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor | None:
        """Return which rows each query sees, or None where the kernels know without a mask.

        Args:
            query: Shape (batch, query_heads, queries, size).
            padding: Shape (batch, positions) bool, False where a position is padding; or None.

        Returns:
            Boolean mask, or additive mask where slots have multiplicities; broadcasts to
            (batch, query_heads, queries, rows).
        """
        is_first_step = query.shape[2] == self.positions.shape[-1]
        if is_first_step and self._is_plain(padding):
            return None
        return self.mask_of_last(query, padding, query.shape[2])

    def mask_of_last(
        self,
        query: torch.Tensor,
        padding: torch.Tensor | None,
        n_last: int,
    ) -> torch.Tensor | None:
        """Return which rows the last queries see, or None where they see all.

        Args:
            query: Shape (batch, query_heads, queries, size).
            padding: As for `mask`.
            n_last: How many of the last queries are asked about.

        Returns:
            As `mask`, for the asked queries only.
        """
        if self._is_plain(padding) and (n_last == 1 or self.end is None):
            return None
        visible = self._visible(query, padding, n_last)
        if self.log_multiplicity is None:
            return visible
        bias = torch.from_numpy(self._by_head(self.log_multiplicity, query)).to(query.device)
        return torch.where(visible, bias[:, :, None].to(query.dtype), float("-inf"))

    def _is_plain(self, padding: torch.Tensor | None) -> bool:
        return padding is None and self.positions.ndim == 1 and self.log_multiplicity is None

    def _visible(
        self,
        query: torch.Tensor,
        padding: torch.Tensor | None,
        n_last: int,
    ) -> torch.Tensor:
        positions = self._by_head(self.positions, query)[:, :, None]
        if self.end is None:
            seen = positions != NO_SLOT
        else:
            seen = positions <= np.arange(self.end - n_last, self.end)[:, None]
        visible = torch.from_numpy(seen).to(query.device)
        if padding is None:
            return visible
        columns = np.where(positions == NO_SLOT, 0, positions + self.shifted)
        inside = columns < padding.shape[1]
        at = torch.from_numpy(np.where(inside, columns, 0)[0, :, 0]).to(query.device)
        kept = padding.to(query.device)[:, at][:, :, None]
        # Positions past the mask's end are newer than the mask.
        return visible & (kept | torch.from_numpy(~inside).to(query.device))

    @staticmethod
    def _by_head(rows: NDArray[Number], query: torch.Tensor) -> NDArray[Number]:
        """Shape (1, 1, rows), or (1, query_heads, rows) where heads differ."""
        if rows.ndim == 1:
            return rows[None, None]
        return np.repeat(rows, query.shape[1] // rows.shape[0], axis=0)[None]
