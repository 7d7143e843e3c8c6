"""One pass of the text model over several streams, in shapes that can be compiled or captured.

All of a pass is tensors of fixed shapes: nothing in it waits for the host or depends on how much
each stream holds. What a query sees is worked out from positions, for both kinds of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from audiokv.models.gemma3n.slot_alignment import N_JUDGING_QUERIES
from audiokv.models.probe import attended_values, attention_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from audiokv.models.gemma3n.batch_workspace import LayerMap, Workspace
    from audiokv.models.gemma3n.speech_model import Inputs

    Heads = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PassInputs:
    """What a pass reads, padded at the front so that the last positions of all streams line up.

    Attributes:
        embeds: Shape (lanes, n, hidden).
        per_layer: Shape (lanes, n, layers, size).
        positions: Shape (lanes, n); a position that pads stands where the lane's last one does.
        is_real: Shape (lanes, n), False where a position pads.
        full_rows: Rows that the new keys of full-attention layers are written to, shape (lanes, n).
        sliding_rows: The same for sliding layers.
        full_positions: Position of every row, the new ones included, shape (lanes, rows + 1).
        full_log_counts: Logarithm of the slots that each row stands for, the same shape.
        sliding_positions: As ``full_positions``.
    """

    embeds: torch.Tensor
    per_layer: torch.Tensor
    positions: torch.Tensor
    is_real: torch.Tensor
    full_rows: torch.Tensor
    sliding_rows: torch.Tensor
    full_positions: torch.Tensor
    full_log_counts: torch.Tensor
    sliding_positions: torch.Tensor

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return all of them, in the order of their fields."""
        return tuple(getattr(self, name) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class PassOutputs:
    """What a pass gives.

    Attributes:
        hidden: Shape (lanes, n, hidden).
        received: Attention that each row received from the last queries, as
            ``SlotCache.importance``: shape (lanes, producers, key_heads, rows + 1).
        weights: Attention of the heads asked for, shape (lanes, heads, n, rows + 1); no heads
            where none were.
    """

    hidden: torch.Tensor
    received: torch.Tensor
    weights: torch.Tensor


class SharedStep:
    """Writes a pass's new keys where they belong, attends, and keeps the weights wanted.

    Args:
        layers: The model's layers.
        keys: As ``Workspace.keys``; written to.
        values: As ``Workspace.values``; written to.
        inputs: What the pass reads.
    """

    def __init__(
        self,
        layers: LayerMap,
        keys: Mapping[int, torch.Tensor],
        values: Mapping[int, torch.Tensor],
        inputs: PassInputs,
    ) -> None:
        self._layers = layers
        self._keys = keys
        self._values = values
        self._rows = {
            **dict.fromkeys(layers.full, inputs.full_rows),
            **dict.fromkeys(layers.sliding, inputs.sliding_rows),
        }
        self.weights: list[torch.Tensor] = []  # of each full-attention layer

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer: int,
        **_: Any,  # noqa: ANN401  transformers' interface
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's new rows and return all of its rows."""
        rows = self._rows[layer][:, None, :, None].expand_as(key_states)
        keys, values = self._keys[layer], self._values[layer]
        keys.scatter_(2, rows, key_states)
        values.scatter_(2, rows, value_states)
        return keys, values

    def attend(
        self,
        module: Any,  # noqa: ANN401  transformers is not typed
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the attention's output, shape (lanes, n, query_heads, size)."""
        if module.is_sliding:
            options = {"scaling": module.scaling, "is_causal": False}
            output: torch.Tensor = sdpa_attention_forward(
                module, query, key, value, mask, **options
            )[0]
            return output
        weights = attention_weights(query, key, mask, scaling=module.scaling)
        self.weights.append(weights)
        return attended_values(weights, value, query.shape[2])


class SharedForward:
    """The text model over several streams at once.

    Args:
        language_model: The ``Gemma3nTextModel``; its weights are used in place.
        layers: Its layers.
    """

    def __init__(self, language_model: Any, layers: LayerMap) -> None:  # noqa: ANN401  not typed
        self._model = language_model
        self._layers = layers
        fix_cutoffs(language_model)

    def __call__(
        self,
        inputs: PassInputs,
        keys: Mapping[int, torch.Tensor],
        values: Mapping[int, torch.Tensor],
        heads: Heads | None,
    ) -> PassOutputs:
        """Run a pass.

        Args:
            inputs: What it reads.
            keys: As ``Workspace.keys``; the new rows are written to it.
            values: Likewise.
            heads: Layer and head of those whose weights are wanted; all where none is named; None
                where no weights are wanted.
        """
        step = SharedStep(self._layers, keys, values, inputs)
        hidden: torch.Tensor = self._model(
            inputs_embeds=inputs.embeds,
            per_layer_inputs=inputs.per_layer,
            position_ids=inputs.positions,
            attention_mask={
                "full_attention": full_mask(inputs),
                "sliding_attention": sliding_mask(inputs, self._layers.window),
            },
            cache=step,
            use_cache=True,
            shared_step=step,
        ).last_hidden_state
        by_head = self._by_head(step.weights, heads, hidden.shape[1])
        return PassOutputs(hidden, self._received(step.weights, inputs.is_real), by_head)

    def _received(self, weights: Sequence[torch.Tensor], is_real: torch.Tensor) -> torch.Tensor:
        n_new = is_real.shape[1]
        judging = is_real[:, -N_JUDGING_QUERIES:].float()
        shares = judging / judging.sum(dim=1, keepdim=True).clamp(min=1.0)
        parts: list[list[torch.Tensor]] = [[] for _ in self._layers.full]
        for (_, producer), layer in zip(self._layers.readers, weights, strict=True):
            lanes, n_key_heads, _, n_rows = layer.shape
            by_query = layer.view(lanes, n_key_heads, -1, n_new, n_rows)
            last = by_query[:, :, :, -N_JUDGING_QUERIES:].mean(dim=2)
            parts[producer].append((last * shares[:, None, :, None]).sum(dim=2))
        return torch.stack([torch.stack(part).mean(dim=0) for part in parts], dim=1)

    def _by_head(
        self, weights: Sequence[torch.Tensor], heads: Heads | None, n_new: int
    ) -> torch.Tensor:
        lanes, n_rows = weights[0].shape[0], weights[0].shape[-1]
        by_layer = {
            layer: given.view(lanes, -1, n_new, n_rows)
            for (layer, _), given in zip(self._layers.readers, weights, strict=True)
        }
        if heads is None:
            return weights[0].new_empty((lanes, 0, n_new, n_rows))
        if not heads:
            return torch.cat(list(by_layer.values()), dim=1)
        return torch.stack(
            [by_layer[layer][:, head] for layer, head in heads if layer in by_layer], dim=1
        )


def full_mask(inputs: PassInputs) -> torch.Tensor:
    """Return what is added to the logits of full attention, shape (lanes, 1, n, rows + 1)."""
    is_seen = inputs.full_positions[:, None] <= inputs.positions[:, :, None]
    counts = inputs.full_log_counts[:, None]
    return torch.where(is_seen, counts, float("-inf"))[:, None]


def sliding_mask(inputs: PassInputs, window: int) -> torch.Tensor:
    """Return what a query of a sliding layer sees, shape (lanes, 1, n, rows + 1)."""
    positions, queries = inputs.sliding_positions[:, None], inputs.positions[:, :, None]
    return ((positions <= queries) & (positions > queries - window))[:, None]


def read_into(
    space: Workspace, lanes: Sequence[int], parts: Sequence[Inputs], n_new: int
) -> PassInputs:
    """Give new positions their rows in a workspace, and return the pass that reads them.

    Args:
        space: The workspace, with room for them.
        lanes: The lanes that read something.
        parts: What each of them reads, at most ``n_new`` positions.
        n_new: Positions of the pass; the others pad.
    """
    first = parts[0]
    n_lanes = space.n_lanes
    embeds = first.embeds.new_zeros((n_lanes, n_new, *first.embeds.shape[2:]))
    per_layer = first.per_layer.new_zeros((n_lanes, n_new, *first.per_layer.shape[2:]))
    is_real = np.zeros((n_lanes, n_new), np.bool_)
    full_rows = np.full((n_lanes, n_new), space.full.capacity)
    sliding_rows = np.full((n_lanes, n_new), space.sliding.capacity)
    positions = np.broadcast_to(space.next_position[:, None] - 1, (n_lanes, n_new)).copy()
    for lane, part in zip(lanes, parts, strict=True):
        n_own, begins = len(part), int(space.next_position[lane])
        own = slice(n_new - n_own, n_new)
        embeds[lane, own] = part.embeds[0]
        per_layer[lane, own] = part.per_layer[0]
        is_real[lane, own] = True
        positions[lane] = begins + n_own - 1
        positions[lane, own] = begins + np.arange(n_own)
        full_rows[lane, own] = space.full.add(lane, begins, n_own)
        sliding_rows[lane, own] = space.sliding.add(lane, begins, n_own)
        space.next_position[lane] += n_own

    def there(array: np.ndarray[Any, Any]) -> torch.Tensor:
        # A copy also on a processor: the host goes on changing its own.
        return torch.tensor(array, device=embeds.device)

    return PassInputs(
        embeds=embeds,
        per_layer=per_layer,
        positions=there(positions),
        is_real=there(is_real),
        full_rows=there(full_rows),
        sliding_rows=there(sliding_rows),
        full_positions=there(space.full.positions),
        full_log_counts=there(space.full.log_counts),
        sliding_positions=there(space.sliding.positions),
    )


def fix_cutoffs(language_model: Any) -> None:  # noqa: ANN401  transformers is not typed
    """Let sparse layers take their cut-off from a tensor made once instead of in every pass.

    Making it waits for the host, which no captured pass may do. The figures stay the same.
    """
    for layer in language_model.layers:
        mlp = layer.mlp
        if mlp.activation_sparsity > 0.0:
            share = torch.tensor(mlp.activation_sparsity, dtype=torch.float32)
            n_deviations = torch.distributions.Normal(0, 1).icdf(share)  # type: ignore[no-untyped-call]  # torch is typed in part
            cutoff = _Cutoff(float(n_deviations.to(mlp.gate_proj.weight.dtype)))
            mlp._gaussian_topk = cutoff  # noqa: SLF001  a method of its own for each layer


class _Cutoff:
    """Keeps what lies above mean plus so many deviations, as ``Gemma3nTextMLP`` does."""

    def __init__(self, n_deviations: float) -> None:
        self._n_deviations = n_deviations

    def __call__(self, gates: torch.Tensor) -> torch.Tensor:
        mean = gates.mean(dim=-1, keepdim=True)
        spread = gates.std(dim=-1, keepdim=True, unbiased=False)
        return torch.nn.functional.relu(gates - (mean + spread * self._n_deviations))
