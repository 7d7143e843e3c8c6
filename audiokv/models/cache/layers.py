"""A cache layer of transformers that holds any subset of the slots it has seen."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.cache_utils import CacheLayerMixin

from audiokv.models.cache.readout import NO_SLOT, Readout
from audiokv.models.cache.stores import SlotStore
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from audiokv.models.cache.rotary import KeyRotation


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # its hook is not typed
    """Full-attention layer whose slots can leave, shrink, merge and move.

    It answers with the logical length, so that positions go on counting, and hands out keys with
    a `Readout`, from which the attention function masks. All heads share one `SlotStore`, or each
    has its own where budgets differ by head.

    Args:
        is_causal: Whether queries and slots lie on one time axis; False for cross-attention.
        per_head: Whether heads may hold different slots.
        rotation: Returns the rotation of the layer's keys, or None; asked when keys move.
        n_probed: How many of a step's last queries to show the weights of.
        attended: Called after each attention over the layer's keys, as `Readout.attended` is and
            with the layer in front.
    """

    is_compileable = False
    is_croppable = True
    is_sliding = False

    def __init__(
        self,
        *,
        is_causal: bool,
        per_head: bool,
        rotation: Callable[[], KeyRotation | None],
        n_probed: int,
        attended: Callable[[SlotLayer, int, torch.Tensor | None], None],
    ) -> None:
        # The base class assigns `keys` and `values`, which are computed here.
        self.is_initialized = False
        self.stores: list[SlotStore] = []
        self.seen = 0
        self._is_causal = is_causal
        self._per_head = per_head
        self._rotation_of = rotation
        self._n_probed = n_probed
        self._attended = attended
        self._awaits_attention = False
        self._shifted = 0

    @property
    def held(self) -> int:
        """Slots of the head that holds most."""
        return max((len(store) for store in self.stores), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots held."""
        return sum(store.nbytes for store in self.stores)

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of the memory behind them."""
        return sum(store.allocated_nbytes for store in self.stores)

    @property
    def batch_size(self) -> int:
        """Rows of the batch."""
        return int(self.stores[0].keys().shape[0]) if self.stores else -1

    @cached_property
    def rotation(self) -> KeyRotation | None:
        """Rotation of the layer's keys, or None where they carry no position.

        Raises:
            ConfigError: The model's rotary embedding has no fixed rotation between positions.
        """
        return self._rotation_of()

    @property
    def keys(self) -> torch.Tensor | None:  # type: ignore[override]  # computed, not assigned
        """All keys held, with their readout; encoder-decoder models read them here."""
        if not self.stores:
            return None
        if not self._is_causal:
            self._check_attended()
        return self._read_keys()

    @property
    def values(self) -> torch.Tensor | None:  # type: ignore[override]  # likewise
        """All values held, in the order of the keys."""
        return _padded([store.values() for store in self.stores]) if self.stores else None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take type, device and sizes from the first slots."""
        n_heads = key_states.shape[1]
        n_stores = n_heads if self._per_head else 1
        heads = n_heads // n_stores
        shape = (key_states.shape[0], heads, 0)
        self.stores = [
            SlotStore(
                key_states.new_empty((*shape, key_states.shape[-1])),
                value_states.new_empty((*shape, value_states.shape[-1])),
            )
            for _ in range(n_stores)
        ]
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_: Any,  # noqa: ANN401  transformers' interface
        **__: Any,  # noqa: ANN401
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the slots of this step and return all that the step may attend to.

        Raises:
            ConfigError: The slots of the step before were read by an attention other than ours.
        """
        self._check_attended()
        self.append(key_states, value_states)
        self._awaits_attention = True
        return self._read_keys(), _padded([store.values() for store in self.stores])

    def append(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Add slots that nothing is to attend to now."""
        if not self.stores:
            self.lazy_initialization(key_states, value_states)
        n_stores = len(self.stores)
        for store, keys, values in zip(
            self.stores,
            key_states.chunk(n_stores, dim=1),
            value_states.chunk(n_stores, dim=1),
            strict=True,
        ):
            store.append(keys, values, self.seen)
        self.seen += key_states.shape[2]

    def get_seq_length(self) -> int:
        """Logical length: the position of the next slot."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the step's mask."""
        # Of the mask only the padding is used, so it spans no more than the new slots.
        return query_length, self.seen

    def get_max_length(self) -> int:
        """No limit of length: slots leave by budget."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last positions; all earlier slots stay bit for bit.

        Args:
            tokens_to_remove: Number of positions, negative or zero.

        Raises:
            ValueError: A positive number, which older versions of transformers took for a length.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop({tokens_to_remove}): give the number to remove, negated")
        if not self.stores:
            return
        self.seen += tokens_to_remove
        self._awaits_attention = False
        for store in self.stores:
            store.truncate(self.seen)

    def reset(self) -> None:
        """Forget everything."""
        self.stores = []
        self.is_initialized = False
        self.seen = self._shifted = 0
        self._awaits_attention = False

    def shift(self, by: int) -> None:
        """Move every slot and the counter by a number of positions."""
        rotation = self.rotation
        for store in self.stores:
            store.shift(by, rotation)
        self.seen += by
        self._shifted -= by

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Take batch rows in the order of surviving beams."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only some batch rows."""
        for store in self.stores:
            store.change_batch(lambda rows: rows.index_select(0, indices.to(rows.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every batch row."""
        for store in self.stores:
            store.change_batch(lambda rows: rows.repeat_interleave(repeats, dim=0))

    def _read_keys(self) -> torch.Tensor:
        keys = _padded([store.keys() for store in self.stores])
        return self._readout().attach(keys)

    def _check_attended(self) -> None:
        if self._awaits_attention:
            raise ConfigError(
                "attention_unsupported",
                "The model attended to a budgeted cache without using its attention.",
                'Call model.set_attn_implementation("audiokv") before the first step.',
            )

    def _readout(self) -> Readout:
        orders = [store.order() for store in self.stores]
        positions = [
            store.positions[order] for store, order in zip(self.stores, orders, strict=True)
        ]
        counts = [
            store.multiplicity[order] for store, order in zip(self.stores, orders, strict=True)
        ]
        log_counts = None
        if any((count > 1).any() for count in counts):
            log_counts = _stacked([np.log(count.astype(np.float32)) for count in counts], 0)
        return Readout(
            positions=_stacked(positions, NO_SLOT),
            log_multiplicity=log_counts,
            end=self.seen if self._is_causal else None,
            shifted=self._shifted,
            n_probed=self._n_probed,
            attended=self._notice,
        )

    def _notice(self, reader_index: int, weights: torch.Tensor | None) -> None:
        self._awaits_attention = False
        self._attended(self, reader_index, weights)


def _padded(parts: list[torch.Tensor]) -> torch.Tensor:
    """One tensor of all heads, shape (batch, heads, most held, size); short heads end in zeros."""
    if len(parts) == 1:
        return parts[0]
    batch, _, _, size = parts[0].shape
    rows = parts[0].new_zeros((batch, len(parts), max(part.shape[2] for part in parts), size))
    for head, part in enumerate(parts):
        rows[:, head, : part.shape[2]] = part[:, 0]
    return rows


def _stacked(parts: list[np.ndarray[Any, Any]], padding: int) -> np.ndarray[Any, Any]:
    """The same for one number a slot: shape (held,) for one store, else (heads, most held)."""
    if len(parts) == 1:
        return parts[0]
    rows = np.full((len(parts), max(len(part) for part in parts)), padding, parts[0].dtype)
    for head, part in enumerate(parts):
        rows[head, : len(part)] = part
    return rows
