"""The parts of Gemma 4's audio tower on a stream: what each needs of the past, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from audiokv.models.audio_llm.past_attention import attend_to_past
from audiokv.streaming.errors import ConfigError


class SubsampledRows:
    """One convolution of the front, every second row, with its norm over channels.

    A row reads the row before and the row behind its own, so it waits for one more; a row of zeros
    stands before the stream and, where it ends, behind it.

    Args:
        layer: The model's ``Gemma4AudioSubSampleConvProjectionLayer``; its weights are used in
            place.
        n_frequencies: Width of its input.
    """

    def __init__(self, layer: Any, n_frequencies: int) -> None:  # noqa: ANN401  not typed
        self._layer = layer
        self._n_frequencies = n_frequencies

    @property
    def n_out(self) -> int:
        """Width of its output."""
        return (self._n_frequencies + 1) // 2

    def start(self, batch: int) -> torch.Tensor:
        """Return the rows it holds before any audio, shape (batch, channels, 1, frequencies)."""
        weight: torch.Tensor = self._layer.conv.weight
        return weight.new_zeros((batch, weight.shape[1], 1, self._n_frequencies))

    def push(self, held: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take rows and return the output rows they complete.

        Args:
            held: Rows still to be read.
            rows: Shape (batch, channels, n, frequencies).

        Returns:
            Shape (batch, out_channels, m, out_frequencies), and the rows still to be read.
        """
        conv = self._layer.conv
        held = torch.cat((held, rows.to(held.dtype)), dim=2)
        n_new = max(0, (held.shape[2] - 1) // 2)
        if not n_new:
            return held.new_empty((held.shape[0], conv.out_channels, 0, self.n_out)), held
        read = held[:, :, : 2 * n_new + 1]
        out = functional.conv2d(read, conv.weight, stride=2, padding=(0, 1))
        out = self._layer.norm(out.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self._layer.act(out), held[:, :, 2 * n_new :].clone()

    def flush(self, held: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Take the stream's last rows and return all output rows that are still due."""
        behind = rows.new_zeros((*rows.shape[:2], 1, rows.shape[3]))
        return self.push(held, torch.cat((rows, behind), dim=2))[0]


@dataclass(frozen=True, slots=True)
class LayerState:
    """What one conformer layer carries on.

    Attributes:
        keys: Of the last frames, scaled, shape (batch, past, heads, size); zeros before the stream.
        values: Likewise.
        conv_rows: Last inputs of the convolution, shape (batch, kernel - 1, hidden).
    """

    keys: torch.Tensor
    values: torch.Tensor
    conv_rows: torch.Tensor


class ConformerLayer:
    """One conformer layer.

    Args:
        layer: The model's ``Gemma4AudioLayer``; its weights are used in place.
        position_embeddings: What the tower's ``rel_pos_enc`` gives: one row a distance, farthest
            first, shape (1, distances, hidden).

    Raises:
        ConfigError: Its frames look ahead, which no stream can.
    """

    def __init__(self, layer: Any, position_embeddings: torch.Tensor) -> None:  # noqa: ANN401  not typed
        attention = layer.self_attn
        if attention.max_future_horizon:
            raise ConfigError(
                "tower_looks_ahead",
                f"The audio tower looks {attention.max_future_horizon} frames ahead.",
                "Use a model with attention_context_right = 0, as Gemma 4 has.",
            )
        self._layer = layer
        # The mask of the class leaves out the farthest frame its blocks hold.
        self.n_past_frames: int = attention.max_past_horizon - 1
        with torch.no_grad():
            vectors = attention.relative_k_proj(position_embeddings).float()
            by_distance = vectors.view(-1, attention.num_heads, attention.head_dim)
            self._distances = by_distance[-self.n_past_frames - 1 :]
            self._query_scale = attention.q_scale * functional.softplus(attention.per_dim_scale)

    def start(self, batch: int) -> LayerState:
        """Return the state before any audio."""
        attention, conv = self._layer.self_attn, self._layer.lconv1d.depthwise_conv1d
        past = self._distances.new_zeros(
            (batch, self.n_past_frames, attention.num_heads, attention.head_dim)
        )
        rows = conv.weight.new_zeros((batch, conv.left_pad, conv.in_channels))
        return LayerState(past, past, rows)

    def advance(
        self, state: LayerState, frames: torch.Tensor, n_before: int
    ) -> tuple[torch.Tensor, LayerState]:
        """Encode the next frames.

        Args:
            state: As it was left.
            frames: Shape (batch, n, hidden), n at least 1.
            n_before: Frames of the stream before these.

        Returns:
            The same shape, and the state after it.
        """
        layer = self._layer
        limit = _limit(layer.gradient_clipping, layer.norm_pre_attn.weight)
        hidden = layer.feed_forward1(frames)
        attended, keys, values = self._attend(
            state, layer.norm_pre_attn(hidden.clamp(-limit, limit)), n_before
        )
        hidden = hidden + layer.norm_post_attn(attended.clamp(-limit, limit))
        hidden, conv_rows = self._convolve(state, hidden)
        hidden = layer.feed_forward2(hidden).clamp(-limit, limit)
        return layer.norm_out(hidden), LayerState(keys, values, conv_rows)

    def _attend(
        self, state: LayerState, hidden: torch.Tensor, n_before: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        attention = self._layer.self_attn
        batch, n_frames, _ = hidden.shape
        shape = (batch, n_frames, attention.num_heads, attention.head_dim)
        new_keys = attention.k_proj(hidden).float().view(shape) * attention.k_scale
        keys = torch.cat((state.keys, new_keys), dim=1)
        values = torch.cat((state.values, attention.v_proj(hidden).float().view(shape)), dim=1)
        attended = attend_to_past(
            attention.q_proj(hidden).float().view(shape) * self._query_scale,
            keys,
            values,
            self._distances,
            softcap=attention.softcap,
            n_before=[n_before] * batch,
        )
        kept = (keys[:, n_frames:].clone(), values[:, n_frames:].clone())
        return attention.post(attended.to(hidden.dtype)), *kept

    def _convolve(
        self, state: LayerState, frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        conv = self._layer.lconv1d
        gated = functional.glu(conv.linear_start(conv.pre_layer_norm(frames)), dim=-1)
        rows = torch.cat((state.conv_rows, gated), dim=1)
        depthwise = conv.depthwise_conv1d
        hidden = functional.conv1d(
            rows.transpose(1, 2), depthwise.weight, groups=depthwise.groups
        ).transpose(1, 2)
        limit = _limit(conv.gradient_clipping, conv.conv_norm.weight)
        hidden = conv.act_fn(conv.conv_norm(hidden.clamp(-limit, limit)))
        return frames + conv.linear_end(hidden), rows[:, gated.shape[1] :].clone()


def _limit(gradient_clipping: float, weight: torch.Tensor) -> float:
    return min(gradient_clipping, torch.finfo(weight.dtype).max)
