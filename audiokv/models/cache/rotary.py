"""Rotation of cached keys to other positions.

Keys are cached after their rotary embedding, so a key at position p is its raw vector turned by
p times the model's frequencies. Turning it further by d moves it to position p + d, and attention
scores stay as they are as long as every key and the query move together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Frequencies that change with the length of the sequence leave no fixed rotation between positions.
_LENGTH_DEPENDENT = frozenset({"dynamic", "longrope"})

# Families that pair neighbouring components instead of the two halves of a head.
_PAIRS_NEIGHBOURS = (
    *("blt", "cohere", "deepseek", "ernie4_5", "glm", "helium", "llama4", "longcat", "mistral4"),
    "moonshine",
)


class KeyRotation:
    """Turns keys of one layer by a number of positions.

    Args:
        frequencies: Shape (rotated_size // 2,), radians a position.
    """

    def __init__(self, frequencies: torch.Tensor) -> None:
        self._frequencies = frequencies.double().cpu()

    def rotate(self, keys: torch.Tensor, by: NDArray[np.int64]) -> torch.Tensor:
        """Return keys moved by whole positions.

        Args:
            keys: Shape (batch, heads, slots, size). Components past the rotated size stay.
            by: Shape (slots,), positions to move each slot by; negative moves it back.

        Returns:
            New tensor of the same shape and type; computed in float32 or wider.
        """
        half = self._frequencies.shape[0]
        # In float64: the angle of a long shift has no digits to spare in float32.
        angles = torch.from_numpy(by.astype(np.float64))[:, None] * self._frequencies
        wide = keys if keys.dtype == torch.float64 else keys.float()
        cos = angles.cos().to(device=keys.device, dtype=wide.dtype)
        sin = angles.sin().to(device=keys.device, dtype=wide.dtype)
        first, second, rest = wide.tensor_split((half, 2 * half), dim=-1)
        turned = torch.cat(
            (first * cos - second * sin, second * cos + first * sin, rest),
            dim=-1,
        )
        return turned.to(keys.dtype)


def rotation_for_layer(config: Any, layer_index: int) -> KeyRotation | None:  # noqa: ANN401  any model's config
    """Return the rotation of a layer's keys, or None where the model has no rotary positions.

    Reads the base, the share of rotated components and the scaling from the model's config, for
    each layer type where the config distinguishes them (Gemma).

    Args:
        config: Text config of a transformers model.
        layer_index: Index of the layer.

    Raises:
        ConfigError: The model's rotary embedding has no fixed rotation between positions, or pairs
            components in a way that is not supported.
    """
    parameters = getattr(config, "rope_parameters", None)
    if not parameters:
        return None
    layer_types = getattr(config, "layer_types", None)
    layer_type = layer_types[layer_index] if layer_types else None
    nested = layer_type is not None and layer_type in parameters
    own = parameters[layer_type] if nested else parameters
    if own is None:
        return None
    kind = own.get("rope_type", "default")
    interleaves = getattr(config, "rope_interleave", False)
    if kind in _LENGTH_DEPENDENT or interleaves or config.model_type.startswith(_PAIRS_NEIGHBOURS):
        raise ConfigError(
            "rotary_unsupported",
            f"Cached keys of a {config.model_type!r} model ({kind} rotary positions) "
            "cannot be moved to other positions.",
            "Keep their positions, and end the stream before the model's limit.",
        )
    layer_config = config.per_layer_config[layer_index]
    if kind != "default":
        frequencies, _ = ROPE_INIT_FUNCTIONS[kind](
            config if nested else layer_config,
            None,
            layer_type=layer_type if nested else None,
        )
        return KeyRotation(frequencies)
    size = getattr(layer_config, "head_dim", None) or (
        layer_config.hidden_size // layer_config.num_attention_heads
    )
    rotated = int(size * own.get("partial_rotary_factor", 1.0))
    exponents = torch.arange(0, rotated, 2, dtype=torch.float32) / rotated
    return KeyRotation(1.0 / own["rope_theta"] ** exponents)
