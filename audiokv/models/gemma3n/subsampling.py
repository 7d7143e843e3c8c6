"""The tower's first part, four mel frames to one, on a stream: convolutions that wait for rows.

Each convolution reads ahead only (its padding is behind the audio), so a row of its output is
final once its last input row is there; that is the only look-ahead of the tower. Its norm takes
mean and variance over everything since the stream began, so its state is three sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class NormSums:
    """What the cumulative norm knows of the past; float64, so that hours do not wear it out.

    Attributes:
        count: Values since the stream began, shape (batch,).
        total: Their sum, shape (batch,).
        squares: Sum of their squared distances from the mean of their time, shape (batch,).
    """

    count: torch.Tensor
    total: torch.Tensor
    squares: torch.Tensor

    @classmethod
    def start(cls, batch: int, device: torch.device) -> NormSums:
        """Return the sums of nothing."""
        zeros = torch.zeros(batch, dtype=torch.float64, device=device)
        return cls(zeros, zeros, zeros)

    def normalize(
        self, values: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, NormSums]:
        """Normalise the next rows by all values up to each of them.

        Args:
            values: Shape (batch, channels, rows, frequencies).
            weight: Scale of each channel.
            epsilon: Added to the variance.

        Returns:
            The same shape and type, and the sums after it.
        """
        wide = values.float()
        n_each = wide.shape[1] * wide.shape[3]
        counts = self.count[:, None] + n_each * torch.arange(
            1, wide.shape[2] + 1, dtype=torch.float64, device=wide.device
        )
        totals = self.total[:, None] + wide.sum(dim=(1, 3), dtype=torch.float64).cumsum(dim=1)
        centred = wide - (totals / counts).float()[:, None, :, None]
        spreads = centred.square().sum(dim=(1, 3), dtype=torch.float64)
        squares = self.squares[:, None] + spreads.cumsum(dim=1)
        factors = torch.rsqrt((squares / counts).float() + epsilon)[:, None, :, None]
        normalized = centred * factors * weight.float()[None, :, None, None]
        after = NormSums(counts[:, -1], totals[:, -1], squares[:, -1])
        return normalized.to(values.dtype), after


@dataclass(frozen=True, slots=True)
class ConvState:
    """What a convolution carries on.

    Attributes:
        rows: Input rows that output rows to come will read, shape (batch, channels, rows,
            frequencies).
        sums: Of its norm.
    """

    rows: torch.Tensor
    sums: NormSums


class StreamingConv:
    """One convolution with its norm and activation.

    Args:
        block: The model's ``Gemma3nAudioSSCPConvBlock``; its weights are used in place.
        n_frequencies: Width of its input.
    """

    def __init__(self, block: Any, n_frequencies: int) -> None:  # noqa: ANN401  not typed
        self._conv = block.conv
        self._norm = block.norm
        self._activation: Callable[[torch.Tensor], torch.Tensor] = block.activation
        self._padding: tuple[int, int] = block.manual_padding[:2]  # of the frequencies
        self._n_end_rows: int = block.manual_padding[3]
        self._kernel_rows: int = block.conv.kernel_size[0]
        self._stride_rows: int = block.conv.stride[0]
        self._n_frequencies = n_frequencies

    def start(self, batch: int) -> ConvState:
        """Return the state before any audio."""
        weight = self._conv.weight
        shape = (batch, weight.shape[1], 0, self._n_frequencies)
        return ConvState(weight.new_empty(shape), NormSums.start(batch, weight.device))

    def push(self, state: ConvState, rows: torch.Tensor) -> tuple[torch.Tensor, ConvState]:
        """Take rows and return the output rows they complete.

        Args:
            state: As it was left.
            rows: Shape (batch, channels, n, frequencies).

        Returns:
            Shape (batch, out_channels, m, out_frequencies), and the state after it.
        """
        held = torch.cat((state.rows, rows.to(state.rows.dtype)), dim=2)
        n_out = max(0, (held.shape[2] - self._kernel_rows) // self._stride_rows + 1)
        if not n_out:
            empty = held.new_empty((held.shape[0], self._conv.out_channels, 0, self._n_out()))
            return empty, ConvState(held, state.sums)
        n_read = (n_out - 1) * self._stride_rows + self._kernel_rows
        read = torch.nn.functional.pad(held[:, :, :n_read], self._padding)
        normalized, sums = state.sums.normalize(self._conv(read), self._norm.weight, self._norm.eps)
        rest = held[:, :, n_out * self._stride_rows :].clone()  # not a view that keeps all alive
        return self._activation(normalized), ConvState(rest, sums)

    def flush(self, state: ConvState, rows: torch.Tensor) -> torch.Tensor:
        """Take the stream's last rows and return all output rows that are still due."""
        shape = (*rows.shape[:2], self._n_end_rows, rows.shape[3])
        return self.push(state, torch.cat((rows, rows.new_zeros(shape)), dim=2))[0]

    def _n_out(self) -> int:
        kernel, stride = self._conv.kernel_size[1], self._conv.stride[1]
        return int((self._n_frequencies + sum(self._padding) - kernel) // stride + 1)
