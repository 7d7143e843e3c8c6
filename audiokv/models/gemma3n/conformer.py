"""The tower's conformer blocks on a stream: what each block needs of the past, and no more.

A frame attends to itself and to a fixed number of frames before it, with a bias by distance and no
absolute position, so the state of a block is those keys and values and the last inputs of its
causal convolution. Architecture: Conformer (Gulati et al., 2020) as in the Universal Speech Model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from audiokv.models.audio_llm.past_attention import attend_to_past
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class BlockState:
    """What one block carries on.

    Attributes:
        keys: Of the last frames, shape (batch, past, heads, size); zeros before the stream.
        values: Likewise.
        conv_rows: Last inputs of the convolution, shape (batch, kernel - 1, hidden).
    """

    keys: torch.Tensor
    values: torch.Tensor
    conv_rows: torch.Tensor


class StreamingBlock:
    """One conformer block.

    Args:
        block: The model's ``Gemma3nAudioConformerBlock``; its weights are used in place.

    Raises:
        ConfigError: Its frames look ahead, which no stream can.
    """

    def __init__(self, block: Any) -> None:  # noqa: ANN401  transformers is not typed
        attention = block.attention.attn
        if attention.max_future_horizon:
            raise ConfigError(
                "tower_looks_ahead",
                f"The audio tower looks {attention.max_future_horizon} frames ahead.",
                "Use a model with conf_attention_context_right = 0, as Gemma-3n has.",
            )
        self._block = block
        self.n_past_frames: int = attention.max_past_horizon
        self._n_conv_rows: int = block.lconv1d.causal_padding
        with torch.no_grad():
            self._query_scale = attention.q_scale * torch.nn.functional.softplus(
                attention.per_dim_scale
            )
            self._distances = _distance_vectors(attention)

    def start(self, batch: int) -> BlockState:
        """Return the state before any audio."""
        attention = self._block.attention.attn
        weight = attention.k_proj.weight
        past = weight.new_zeros(
            (batch, self.n_past_frames, attention.num_heads, attention.head_dim)
        )
        rows = weight.new_zeros((batch, self._n_conv_rows, attention.hidden_size))
        return BlockState(past, past, rows)

    def advance(
        self, state: BlockState, frames: torch.Tensor, n_before: Sequence[int]
    ) -> tuple[torch.Tensor, BlockState]:
        """Encode the next frames.

        Args:
            state: As it was left.
            frames: Shape (batch, n, hidden), n at least 1.
            n_before: Frames before these, one number for each stream of the batch.

        Returns:
            The same shape, and the state after it.
        """
        block = self._block
        hidden, keys, values = self._attend(state, block.ffw_layer_start(frames), n_before)
        hidden, conv_rows = self._convolve(state, hidden)
        hidden = block.ffw_layer_end(hidden)
        limit = block.gradient_clipping
        return block.norm(hidden.clamp(-limit, limit)), BlockState(keys, values, conv_rows)

    def _attend(
        self, state: BlockState, frames: torch.Tensor, n_before: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        outer, attention = self._block.attention, self._block.attention.attn
        limit = outer.gradient_clipping
        hidden = outer.pre_attn_norm(frames.clamp(-limit, limit))
        batch, n_frames, _ = frames.shape
        shape = (batch, n_frames, attention.num_heads, attention.head_dim)
        queries = attention.q_proj(hidden).view(shape) * self._query_scale
        keys = torch.cat((state.keys, attention.k_proj(hidden).view(shape)), dim=1)
        values = torch.cat((state.values, attention.v_proj(hidden).view(shape)), dim=1)
        attended = attend_to_past(
            queries, keys, values, self._distances, softcap=attention.softcap, n_before=n_before
        )
        attended = outer.post(attended).clamp(-limit, limit)
        kept = (keys[:, n_frames:].clone(), values[:, n_frames:].clone())
        return frames + outer.post_norm(attended), *kept

    def _convolve(
        self, state: BlockState, frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        conv = self._block.lconv1d
        gated = torch.nn.functional.glu(conv.linear_start(conv.pre_layer_norm(frames)), dim=-1)
        rows = torch.cat((state.conv_rows, gated), dim=1)
        hidden = conv.depthwise_conv1d(rows.transpose(1, 2)).transpose(1, 2)
        limit = conv.gradient_clipping
        hidden = torch.nn.functional.silu(conv.conv_norm(hidden.clamp(-limit, limit)))
        return frames + conv.linear_end(hidden), rows[:, gated.shape[1] :].clone()


def _distance_vectors(attention: Any) -> torch.Tensor:  # noqa: ANN401  transformers is not typed
    """Return what a query is multiplied with for each distance, farthest first.

    Shape (past + 1, heads, size).
    """
    positions = attention.relative_position_embedding
    weight = positions.pos_proj.weight
    distances = torch.arange(attention.max_past_horizon, -1, -1, device=weight.device)
    times = distances.float()[:, None] * positions.inv_timescales.float().view(1, -1)
    signal = torch.cat((times.sin(), times.cos()), dim=-1).to(weight.dtype)
    vectors: torch.Tensor = positions.pos_proj(signal)
    return vectors.view(-1, attention.num_heads, attention.head_dim)
