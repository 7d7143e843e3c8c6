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

from audiokv.models.cache.readout import Readout
from audiokv.models.probe import attended_values, attention_weights, of_last_queries
from audiokv.streaming.errors import ConfigError

ATTENTION = "audiokv"

# Steps of so few queries are computed with their weights in the open when these are asked for:
# on a CPU that takes less time than the kernel alone (1,024 slots: 0.6 against 5 ms for 8 queries).
_SHORT_STEP_QUERIES = 16


class StepMask(torch.Tensor):
    """Mask of a step that remembers the padding it was made from, also when it is sliced.

    Layers of a budgeted cache take only the padding from it: which slots they hold is their own
    business.

    Attributes:
        padding: Shape (batch, positions), False where a position is padding; or None.
        has_overlay: Whether something was laid over plain causality, such as images that see
            ahead.
    """

    padding: torch.Tensor | None
    has_overlay: bool

    @classmethod
    def over(cls, mask: torch.Tensor, padding: torch.Tensor | None, *, overlay: bool) -> StepMask:
        """Return the mask with what it must remember."""
        made = mask.as_subclass(cls)
        made.padding = padding
        made.has_overlay = overlay
        return made

    def __getitem__(self, index: Any) -> StepMask:  # noqa: ANN401  torch's indexing
        # Gemma 4 drops the queries it needs no answer for before its last layers.
        return StepMask.over(
            self.as_subclass(torch.Tensor)[index], self.padding, overlay=self.has_overlay
        )


def step_mask(**step: Any) -> torch.Tensor | None:  # noqa: ANN401  transformers' mask interface
    """Return the mask that "sdpa" would use, with the padding it was made from."""
    padding = step.get("attention_mask")
    if padding is not None:
        padding = None if bool(padding.all()) else padding.bool()
    may_skip = step.get("allow_is_causal_skip", True)
    # Models with shared keys may drop queries between two layers, which then need a mask.
    may_drop_queries = bool(getattr(step.get("config"), "num_kv_shared_layers", 0))
    needs_mask = padding is not None or (may_drop_queries and step["q_length"] > 1)
    mask: torch.Tensor | None = sdpa_mask(
        **{**step, "allow_is_causal_skip": may_skip and not needs_mask}
    )
    return None if mask is None else StepMask.over(mask, padding, overlay=not may_skip)


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
        call: `scaling`, `dropout`, `softcap` and whatever else the model passes; `shared_step`
            where several streams share the step, which then attends by itself.

    Returns:
        Output of shape (batch, queries, query_heads, value_size), and None for the weights.

    Raises:
        ConfigError: The step's mask says more than causality and padding, which stored positions
            cannot express.
    """
    shared_step = call.pop("shared_step", None)
    if shared_step is not None:
        attended: torch.Tensor = shared_step.attend(module, query, key, value, attention_mask)
        return attended, None
    readout = Readout.of(key)
    if readout is None:
        return _attend(module, (query, key, value), attention_mask, call)
    padding = _padding_of(attention_mask)
    scaling = call.get("scaling")
    logits = {
        "scaling": query.shape[-1] ** -0.5 if scaling is None else scaling,
        "softcap": call.get("softcap"),
    }
    n_queries, n_probed = query.shape[2], readout.n_probed
    weights = None
    is_short = n_probed > 0 and n_queries <= max(n_probed, _SHORT_STEP_QUERIES)
    if is_short and query.dtype == torch.float32 and not call.get("dropout"):
        mask = readout.mask_of_last(query, padding, n_queries)
        weights = attention_weights(query, key, mask, **logits)
        output = attended_values(weights, value, n_queries)
        weights = of_last_queries(weights, n_queries, n_probed)
    else:
        mask = readout.mask(query, padding)
        # The model's flag is for its own layers; a readout knows whether rows are in time order.
        options = {**call, "is_causal": readout.end is not None}
        output, _ = _attend(module, (query, key, value), mask, options)
        if n_probed:
            n_last = min(n_probed, n_queries)
            mask = readout.mask_of_last(query, padding, n_last)
            weights = attention_weights(query[:, :, -n_last:], key, mask, **logits)
    readout.attended(int(module.layer_idx), weights)  # type: ignore[arg-type]  # set by models
    return output, None


def register() -> None:
    """Offer the attention to transformers under our own name; nothing existing changes."""
    AttentionInterface.register(ATTENTION, budgeted_attention)
    AttentionMaskInterface.register(ATTENTION, step_mask)


def _padding_of(mask: torch.Tensor | None) -> torch.Tensor | None:
    if mask is None:
        return None
    if not isinstance(mask, StepMask) or mask.has_overlay:
        raise ConfigError(
            "mask_unsupported",
            "A budgeted cache was given a 4-D mask, or one with blocks that see ahead.",
            "Pass a 2-D padding mask or none; the cache masks by the positions it holds.",
        )
    return mask.padding


def _attend(
    module: torch.nn.Module,
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    call: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    if isinstance(mask, StepMask):
        mask = mask.as_subclass(torch.Tensor)
    if call.get("softcap") is not None:
        return _attend_capped(states, mask, call), None
    output: tuple[torch.Tensor, None] = sdpa_attention_forward(module, *states, mask, **call)
    return output


def _attend_capped(
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    call: dict[str, Any],
) -> torch.Tensor:
    """Attention whose logits are bounded, which no fused kernel of torch offers."""
    query, key, value = states
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
    output: torch.Tensor = weights @ repeat_kv(value, n_rep)
    return output.transpose(1, 2).contiguous()
