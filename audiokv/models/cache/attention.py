"""Attention over caches that hold any subset of the slots.

Registered with transformers under the name "audiokv". Models choose it themselves
(`attn_implementation="audiokv"`), and keys that do not come from a budgeted cache are answered as
by "sdpa", so that encoders and sliding layers work unchanged.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from audiokv.models.cache.readout import Attended, Readout
from audiokv.streaming.errors import ConfigError

ATTENTION = "audiokv"

# What a mask made for a whole step carries for layers that build their own from stored positions.
_PADDING = "audiokv_padding"
_OVERLAY = "audiokv_overlay"


def step_mask(**step: Any) -> torch.Tensor | None:  # noqa: ANN401  transformers' mask interface
    """Return the mask that "sdpa" would use, with the padding it was made from.

    Layers of a budgeted cache take only the padding from it: which slots they hold is their own
    business.
    """
    mask: torch.Tensor | None = sdpa_mask(**step)
    if mask is not None:
        setattr(mask, _PADDING, step.get("attention_mask"))
        # Without the skip something was laid over plain causality, such as images that see ahead.
        setattr(mask, _OVERLAY, not step.get("allow_is_causal_skip", True))
    return mask


def budgeted_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **call: Any,  # noqa: ANN401  transformers' attention interface
) -> tuple[torch.Tensor, None]:
    """Attend to the slots that a layer holds, masked by their stored positions.

    Args:
        module: The attention module.
        query: Shape (batch, query_heads, queries, size).
        key: Shape (batch, key_heads, rows, size).
        value: Shape (batch, key_heads, rows, value_size).
        attention_mask: Mask of the step; only its padding counts where the cache is budgeted.
        call: `scaling`, `dropout`, `softcap` and whatever else the model passes.

    Returns:
        Output of shape (batch, queries, query_heads, value_size), and None for the weights.

    Raises:
        ConfigError: The step's mask says more than causality and padding, which stored positions
            cannot express.
    """
    readout = Readout.of(key)
    if readout is None:
        return _attend(module, query, key, value, attention_mask, call)
    padding = _padding_of(attention_mask)
    # The model's flag is for its own layers; a readout knows whether its rows are ordered in time.
    call.pop("is_causal", None)
    mask = readout.mask(query, padding)
    is_causal = readout.first_query is not None
    output = _attend(module, query, key, value, mask, {**call, "is_causal": is_causal})
    scaling = call.get("scaling")
    readout.attended(
        readout,
        Attended(
            layer_index=int(module.layer_idx),  # type: ignore[arg-type]
            query=query,
            keys=key,
            scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
            softcap=call.get("softcap"),
            padding=padding,
        ),
    )
    return output


def register() -> None:
    """Offer the attention to transformers under our own name; nothing existing changes."""
    AttentionInterface.register(ATTENTION, budgeted_attention)
    AttentionMaskInterface.register(ATTENTION, step_mask)


def _padding_of(mask: torch.Tensor | None) -> torch.Tensor | None:
    if mask is None:
        return None
    if not hasattr(mask, _OVERLAY) or getattr(mask, _OVERLAY):
        raise ConfigError(
            "mask_unsupported",
            "A budgeted cache was given a 4-D mask, or one with blocks that see ahead.",
            "Pass a 2-D padding mask or none; the cache masks by the positions it holds.",
        )
    padding: torch.Tensor | None = getattr(mask, _PADDING)
    return padding if padding is None or padding.dtype == torch.bool else padding.bool()


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    call: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    if call.get("softcap") is not None:
        return _attend_capped(query, key, value, mask, call), None
    output: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, mask, **call
    )
    return output


def _attend_capped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    call: dict[str, Any],
) -> torch.Tensor:
    """Attention whose logits are bounded, which no fused kernel of torch offers."""
    n_rep = query.shape[1] // key.shape[1]
    scaling = call.get("scaling") or query.shape[-1] ** -0.5
    softcap = call["softcap"]
    logits = query @ repeat_kv(key, n_rep).transpose(2, 3) * scaling
    logits = torch.tanh(logits / softcap) * softcap
    n_queries, n_rows = logits.shape[-2:]
    if mask is None and n_queries > 1 and call.get("is_causal", True):
        mask = torch.ones(n_queries, n_rows, dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        bias = torch.where(mask, 0.0, float("-inf")) if mask.dtype == torch.bool else mask
        logits = logits + bias.to(logits.dtype)
    weights = logits.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    return (weights @ repeat_kv(value, n_rep)).transpose(1, 2).contiguous()
