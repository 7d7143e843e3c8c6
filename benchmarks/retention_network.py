"""Whisper's decoder for many rows at once, each of which sees its own part of one clip.

All rows share the keys and values of the clip; what a row does not hold is masked. That an evicted
cache gives the same as a masked one is tested; here it buys one pass over the weights for all
policies together. Every layer and head can be observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn import functional

from audiokv.models.whisper.network import WhisperNetwork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.models.whisper.cross_cache import CrossCache
    from audiokv.models.whisper.network import Dimensions


class Audio(Protocol):
    """Keys and values of a clip's slots, as the rows of a batch see them."""

    def logits(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Return attention logits, unscaled; from (heads, rows, head size) to (.., .., slots)."""

    def read(self, layer: int, attention: torch.Tensor) -> torch.Tensor:
        """Return the attended values; from (heads, rows, slots) to (heads, rows, head size)."""

    def go_on(self, rows: Sequence[int]) -> None:
        """Go on with some of the rows."""


class SharedAudio:
    """Implements ``Audio``: all rows see the same slots.

    Args:
        cross: The clip.
    """

    def __init__(self, cross: CrossCache) -> None:
        self._cross = cross

    def logits(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Return attention logits."""
        return queries @ self._cross.keys[layer].transpose(1, 2)

    def read(self, layer: int, attention: torch.Tensor) -> torch.Tensor:
        """Return the attended values."""
        return attention @ self._cross.values[layer]

    def go_on(self, rows: Sequence[int]) -> None:
        """Nothing to do."""


class OwnAudio:
    """Implements ``Audio``: each row's slots stand for others, with a weight of their own.

    Args:
        crosses: The clip as each row sees it, all of one length, with ``log_mass``.
        scale: What logits are multiplied with afterwards.
    """

    def __init__(self, crosses: Sequence[CrossCache], scale: float) -> None:
        self._keys = [torch.stack(layer) for layer in zip(*(c.keys for c in crosses), strict=True)]
        self._values = [
            torch.stack(layer) for layer in zip(*(c.values for c in crosses), strict=True)
        ]
        masses = [c.log_mass for c in crosses if c.log_mass is not None]
        self._log_mass = torch.stack(masses) / scale

    def logits(self, layer: int, queries: torch.Tensor) -> torch.Tensor:
        """Return attention logits with the weights of the slots."""
        by_row = queries.transpose(0, 1)[:, :, None] @ self._keys[layer].transpose(2, 3)
        return by_row[:, :, 0].transpose(0, 1).float() + self._log_mass

    def read(self, layer: int, attention: torch.Tensor) -> torch.Tensor:
        """Return the attended values."""
        return (attention.transpose(0, 1)[:, :, None] @ self._values[layer])[:, :, 0].transpose(
            0, 1
        )

    def go_on(self, rows: Sequence[int]) -> None:
        """Go on with some of the rows."""
        if len(rows) < len(self._log_mass):
            index = torch.tensor(rows)
            self._keys = [layer[index] for layer in self._keys]
            self._values = [layer[index] for layer in self._values]
            self._log_mass = self._log_mass[index]


class BatchedNetwork(WhisperNetwork):
    """The network with a decoder step for several rows; all heads count as alignment heads."""

    def step(
        self, tokens: torch.Tensor, position: int, own: RowTensors, audio: Audio
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one token of each row, all at the same position.

        Args:
            tokens: Shape (rows,).
            position: Where they stand.
            own: Text cache and held audio of the rows; written to.
            audio: Keys and values of the whole clip.

        Returns:
            Logits, shape (rows, n_vocabulary), and attention to the audio, shape (layers, heads,
            rows, slots); both float32.
        """
        heads, n_rows = self.dims.n_decoder_heads, len(tokens)
        scale = (self.dims.d_model // heads) ** -0.5
        h = self._embedding[tokens] + self._decoder_positions[position]
        seen = []
        for i, layer in enumerate(self._decoder):
            assert layer.cross_norm is not None
            assert layer.cross_q is not None
            assert layer.cross_out is not None
            parts = layer.qkv.low(layer.self_norm(h)).chunk(3, dim=-1)
            q, k, v = (part.view(n_rows, heads, 1, -1) for part in parts)
            own.keys[i, :, :, position : position + 1] = k
            own.values[i, :, :, position : position + 1] = v
            attended = functional.scaled_dot_product_attention(
                q, own.keys[i, :, :, : position + 1], own.values[i, :, :, : position + 1]
            )
            h = h + layer.self_out(attended.reshape(h.shape))
            q = layer.cross_q.low(layer.cross_norm(h)).view(n_rows, heads, -1).transpose(0, 1)
            logits = audio.logits(i, q).float() * scale
            attention = logits.masked_fill(~own.is_held[i], -torch.inf).softmax(dim=-1)
            seen.append(attention)
            attended = audio.read(i, attention.to(self.dtype))
            h = h + layer.cross_out(attended.transpose(0, 1).reshape(h.shape))
            h = h + layer.fc2(functional.gelu(layer.fc1.low(layer.mlp_norm(h))))
        return self.logits(self._decoder_norm(h)), torch.stack(seen)


@dataclass(slots=True)
class RowTensors:
    """What the rows of a batch hold.

    Attributes:
        keys: Of the text, shape (layers, rows, heads, tokens, head size).
        values: Likewise.
        is_held: Which slots a head holds, shape (layers, heads, rows, slots), padding included.
    """

    keys: torch.Tensor
    values: torch.Tensor
    is_held: torch.Tensor

    @classmethod
    def empty(
        cls, dims: Dimensions, dtype: torch.dtype, is_held: torch.Tensor, n_tokens: int
    ) -> RowTensors:
        """Return caches without text.

        Args:
            dims: Sizes of the model.
            dtype: Type of keys and values.
            is_held: See above.
            n_tokens: Most text a row may have.
        """
        heads = dims.n_decoder_heads
        n_rows = is_held.shape[2]
        shape = (dims.n_decoder_layers, n_rows, heads, n_tokens, dims.d_model // heads)
        return cls(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype), is_held)

    def go_on(self, rows: Sequence[int], is_held: torch.Tensor) -> None:
        """Go on with some of the rows, and with what they hold now."""
        if len(rows) < self.keys.shape[1]:
            index = torch.tensor(rows)
            self.keys, self.values = self.keys[:, index], self.values[:, index]
        self.is_held = is_held
