"""The cache that a model is given: its full-attention layers hold any subset of the slots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from audiokv.models.cache.attention import ATTENTION
from audiokv.models.cache.layers import SlotLayer
from audiokv.models.cache.rotary import rotation_for_layer
from audiokv.models.cache.sliding import SlidingLayer
from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import NDArray

    from audiokv.models.cache.stores import SlotStore
    from audiokv.models.probe import AttentionProbe

    Rows = NDArray[np.intp] | Sequence[int]


class SlotCache(DynamicCache):
    """Cache whose slots leave, shrink, merge and move when it is told to.

    A row is a slot that at least one head holds; rows are numbered from 0 in the order of
    arrival, as in `SlotLedger`. Only full-attention layers are concerned: sliding layers bound
    themselves, and layers that share another's keys read whatever that one holds. Rows of a batch
    hold the same slots.

    Args:
        config: Config of the model (`model.config`).
        per_head: Whether heads may hold different slots.
        is_cross: Whether this is the cross-attention cache of an encoder-decoder model.
        probe: Measures the attention that slots receive, or None to measure nothing.

    Raises:
        ConfigError: The model does not use our attention.
    """

    def __init__(
        self,
        config: Any,  # noqa: ANN401  any model's config
        *,
        per_head: bool = False,
        is_cross: bool = False,
        probe: AttentionProbe | None = None,
    ) -> None:
        text_config = config.get_text_config(decoder=True)
        _check_attention(text_config)
        super().__init__(config=text_config)
        # Encoder-decoder configs may count encoder layers where others count decoder layers.
        n_layers = getattr(config, "decoder_layers", None) or len(self.layers)
        layers: list[Any] = self.layers[:n_layers]
        new_layer: Any = DynamicLayer
        layers += [new_layer() for _ in range(n_layers - len(layers))]
        rotations = [partial(rotation_for_layer, text_config, index) for index in range(n_layers)]
        self._producers: list[SlotLayer] = []
        self._sliding: list[SlidingLayer] = []
        for index, layer in enumerate(layers):
            # Exactly these classes: their subclasses keep more than keys and values.
            if type(layer) is DynamicLayer:
                layers[index] = SlotLayer(
                    is_causal=not is_cross,
                    per_head=per_head,
                    rotation=(lambda: None) if is_cross else rotations[index],
                    n_probed=probe.n_queries if probe is not None else 0,
                    attended=self._attended,
                )
                self._producers.append(layers[index])
            elif type(layer) is DynamicSlidingWindowLayer:
                self._sliding.append(SlidingLayer(layer, rotations[index]))
        self.layers = layers
        self._per_head = per_head
        self._last_reader = _last_full_attention_layer(text_config, self.layers)
        self._probe = probe
        self._importance: NDArray[np.float32] | None = None
        self._tail_start: int | None = None

    @property
    def producers(self) -> Sequence[SlotLayer]:
        """The layers whose slots are managed, in model order."""
        return self._producers

    @property
    def seen(self) -> int:
        """Logical length: the position of the next slot."""
        return self._producers[0].seen

    @property
    def held(self) -> int:
        """Rows: slots that at least one head holds."""
        return len(self.positions)

    @property
    def held_per_head(self) -> float:
        """Slots that a head holds on average; equals `held` where heads do not differ."""
        n_held = [len(store) for store in self._stores()]
        return sum(n_held) / len(n_held) if n_held else 0.0

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position of each row, rising; shape (held,)."""
        stores = self._stores()
        if not stores:
            return np.empty(0, np.int64)
        if len(stores) == len(self._producers):
            return stores[0].positions
        return np.unique(np.concatenate([store.positions for store in stores]))

    @property
    def nbytes(self) -> int:
        """Bytes of all slots held, measured from the tensors, sliding layers included."""
        return self.budgeted_nbytes + sum(layer.nbytes for layer in self._sliding)

    @property
    def budgeted_nbytes(self) -> int:
        """The same without sliding layers, which have their own bound."""
        return sum(layer.nbytes for layer in self._producers)

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of the memory behind the managed layers, spare room included."""
        return sum(layer.allocated_nbytes for layer in self._producers)

    @property
    def importance(self) -> NDArray[np.float32] | None:
        """Attention each row received in the last step, or None where nothing was measured.

        Shape (producers, key_heads, held) with the rows held at that step; a head's row sums to
        1, and is 0 for slots the head does not hold.
        """
        return self._importance

    def keep(self, rows: Rows) -> None:
        """Keep only these rows, in every layer and head. Rising row numbers."""
        kept = self.positions[np.asarray(rows, np.int64)]
        for store in self._stores():
            store.keep(_numbers(store, kept))

    def hold(self, mask: NDArray[np.bool_]) -> None:
        """Let each head keep only its rows.

        Args:
            mask: Shape (producers, key_heads, held), True for rows a head keeps. What a head
                does not hold it cannot get back.

        Raises:
            ConfigError: Heads differ, and the cache was not made for that.
        """
        positions = self.positions
        for layer, by_head in zip(self._producers, mask, strict=True):
            if len(layer.stores) == 1 and (by_head != by_head[0]).any():
                raise ConfigError(
                    "heads_unsupported",
                    "A cache with one set of slots for all heads was told to hold several.",
                    "Open it with per_head=True.",
                )
            for store, kept in zip(layer.stores, by_head, strict=False):
                store.keep(_numbers(store, positions[kept]))

    def share(self, kept: Rows) -> None:
        """Let each kept row stand for the rows that follow it up to the next one.

        Takes what `SlotLedger.share_silence` returns. The shared slot's attention logit grows by
        the logarithm of what it stands for.

        Args:
            kept: Rising row numbers, the first of them 0.
        """
        targets = self.positions[np.asarray(kept, np.int64)]
        for layer in self._producers:
            for store in layer.stores:
                run_of = np.searchsorted(targets, store.positions, side="right") - 1
                starts = np.flatnonzero(np.diff(run_of, prepend=-1))
                runs = np.split(np.arange(len(store)), starts[1:])
                shared = [
                    run for run in runs if store.positions[run[-1]] != targets[run_of[run[0]]]
                ]
                store.merge(
                    shared, [int(targets[run_of[run[0]]]) for run in shared], layer.rotation
                )

    def quantize(self, rows: Rows) -> None:
        """Hold these rows as int8."""
        chosen = self.positions[np.asarray(rows, np.int64)]
        for store in self._stores():
            store.quantize(_numbers(store, chosen))

    def promote(self, rows: Rows) -> None:
        """Hold these rows in the model's own type again."""
        chosen = self.positions[np.asarray(rows, np.int64)]
        for store in self._stores():
            store.promote(_numbers(store, chosen))

    def open_tail(self) -> None:
        """Let all that follows be rolled back exactly, until it is rolled back or committed.

        Raises:
            ConfigError: A tail is open already, or a layer of the model cannot go back.
        """
        if self._tail_start is not None:
            raise ConfigError("tail_open", "The cache has an open tail.", "Close it first.")
        if any(self.is_linear):
            raise ConfigError(
                "tail_unsupported",
                "A model with linear-attention layers cannot go back.",
                "Decode on a copy of the cache instead.",
            )
        self._tail_start = self.seen
        for layer in self._sliding:
            layer.open_tail()

    def rollback_tail(self) -> None:
        """Drop the open tail; every earlier slot of every layer is as before, bit for bit."""
        self._close_tail(self._tail_length())

    def commit_tail(self) -> None:
        """Keep the open tail as ordinary slots."""
        self._tail_length()
        self._close_tail(0)

    def reanchor(self, by: int | None = None) -> int:
        """Move all slots and the counter back, so that a stream never runs out of positions.

        Attention logits stay as they are: every key and every later query move alike. Padding
        masks made before no longer fit sliding layers; a stream has none.

        Args:
            by: Positions to move back; by default so many that the counter equals the slots held.

        Returns:
            How far it moved.

        Raises:
            ConfigError: The model's positions cannot be moved, or not that far.
        """
        full_windows = max((layer.full_slots for layer in self._sliding), default=1)
        limit = max(self.seen - full_windows, 0)
        moved = min(limit, self.seen - self.held) if by is None else by
        if not 0 <= moved <= limit:
            raise ConfigError(
                "reanchor_too_far",
                f"Slots cannot move back by {moved} of {self.seen} positions.",
                f"Move by 0 to {limit}: sliding windows that are full must stay full.",
            )
        if any(producer.rotation is None for producer in self._producers):
            raise ConfigError(
                "reanchor_unsupported",
                "The keys of this cache carry no rotary positions.",
                "Start a new cache before the model's limit.",
            )
        for producer in self._producers:
            producer.shift(-moved)
        for layer in self._sliding:
            layer.shift(-moved)
        return moved

    def trim(self) -> None:
        """Give all spare room back."""
        for store in self._stores():
            store.trim()

    def _stepped(self, importance: NDArray[np.float32] | None) -> None:
        """Called when the last layer has attended; the place to let slots go."""
        self._importance = importance

    def _attended(self, layer: SlotLayer, reader_index: int, weights: torch.Tensor | None) -> None:
        if self._probe is not None and weights is not None:
            self._probe.observe(self._producers.index(layer), weights)
        if reader_index == self._last_reader:
            self._stepped(None if self._probe is None else self._take_importance(self._probe))

    def _take_importance(self, probe: AttentionProbe) -> NDArray[np.float32]:
        received = {index: rows.cpu().numpy() for index, rows in probe.take().items()}
        positions = self.positions
        n_heads = max(len(rows) for rows in received.values())
        importance = np.zeros((len(self._producers), n_heads, len(positions)), np.float32)
        for index, layer in enumerate(self._producers):
            heads_each = len(received[index]) // len(layer.stores)
            for number, store in enumerate(layer.stores):
                at = np.searchsorted(positions, store.positions[store.order()])
                heads = slice(number * heads_each, (number + 1) * heads_each)
                importance[index, heads, at] = received[index][heads, : len(store)].T
        return importance

    def _tail_length(self) -> int:
        if self._tail_start is None:
            raise ConfigError("tail_closed", "The cache has no open tail.", "Open one first.")
        return self.seen - self._tail_start

    def _close_tail(self, n_dropped: int) -> None:
        self._tail_start = None
        for layer in self._producers:
            layer.crop(-n_dropped)
        for sliding in self._sliding:
            sliding.close_tail(n_dropped)

    def _stores(self) -> list[SlotStore]:
        return [store for layer in self._producers for store in layer.stores]


def _numbers(store: SlotStore, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the store's slots at the given positions, as far as it holds them."""
    return np.flatnonzero(np.isin(store.positions, positions, assume_unique=True))


def _check_attention(config: Any) -> None:  # noqa: ANN401  any model's config
    used = getattr(config, "_attn_implementation", None)
    if used != ATTENTION:
        raise ConfigError(
            "attention_unsupported",
            f"The model uses the attention {used!r}, which cannot tell slots apart.",
            f'Load it with attn_implementation="{ATTENTION}", '
            f'or call model.set_attn_implementation("{ATTENTION}").',
        )


def _last_full_attention_layer(config: Any, layers: Sequence[Any]) -> int:  # noqa: ANN401
    types = getattr(config, "layer_types", None)
    return max(
        index
        for index, layer in enumerate(layers)
        if isinstance(layer, SlotLayer) or (types and types[index] == "full_attention")
    )
