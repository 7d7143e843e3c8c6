"""Int8 storage of key and value vectors: one scale for each head and slot."""

from __future__ import annotations

import torch

_LEVELS = 127.0


def quantize(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Round each vector to 8 bits against its own largest component.

    Args:
        vectors: Shape (batch, heads, slots, size), any floating type.

    Returns:
        Codes, int8 of the same shape, and scales, float32 of shape (batch, heads, slots, 1).
        No component is off by more than half its scale.
    """
    wide = vectors.float()
    scales = wide.abs().amax(dim=-1, keepdim=True) / _LEVELS
    # A vector of zeros has no scale of its own; any will do, as its codes are zero.
    codes = torch.round(wide / torch.where(scales > 0, scales, 1.0))
    return codes.to(torch.int8), scales


def dequantize(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the vectors that the codes stand for.

    Args:
        codes: Shape (batch, heads, slots, size), int8.
        scales: Shape (batch, heads, slots, 1), float32.
        dtype: Type of the result.
    """
    return (codes.float() * scales).to(dtype)
