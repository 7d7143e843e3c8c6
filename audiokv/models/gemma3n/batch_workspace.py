"""Keys and values of several streams side by side, for the passes they share.

Each stream has a lane: its rows lie at its beginning, and a row counts by the position written
beside it. So lanes hold differently many rows, with gaps in their positions where slots were
evicted, and a tail is rolled back by forgetting its positions. The streams' own caches stay what
is true: a lane is a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from audiokv.models.cache.readout import NO_SLOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from audiokv.models.cache import BudgetedCache


@dataclass(frozen=True, slots=True)
class LayerMap:
    """Which layers have keys of their own, and who reads them; from the model's config.

    Attributes:
        full: Full-attention layers with keys of their own.
        sliding: Sliding layers with keys of their own.
        readers: Full-attention layers in the order in which they run, each with the number of its
            producer in ``full``.
        n_key_heads: Key heads of every layer.
        head_size: Size of a head.
        window: Positions a query of a sliding layer sees, its own included.
    """

    full: tuple[int, ...]
    sliding: tuple[int, ...]
    readers: tuple[tuple[int, int], ...]
    n_key_heads: int
    head_size: int
    window: int

    @classmethod
    def of(cls, config: Any) -> LayerMap:  # noqa: ANN401  transformers is not typed
        """Read it from a text config."""
        types = config.layer_types
        owns = [mode != "reuse" for mode in config.kv_sharing_modes]
        full = [i for i, kind in enumerate(types) if kind == "full_attention" and owns[i]]
        readers = [
            (i, sum(producer <= i for producer in full) - 1)
            for i, kind in enumerate(types)
            if kind == "full_attention"
        ]
        return cls(
            full=tuple(full),
            sliding=tuple(i for i, own in enumerate(owns) if own and i not in full),
            readers=tuple(readers),
            n_key_heads=config.num_key_value_heads,
            head_size=config.head_dim,
            window=config.sliding_window,
        )


@dataclass(slots=True)
class Rows:
    """The rows of one kind of layer, on the host.

    Attributes:
        positions: Position of each row, ``NO_SLOT`` where there is none; shape (lanes, rows + 1).
            The last row takes what pads a pass, and never has a position.
        log_counts: Logarithm of the slots that each row stands for, the same shape.
        n_held: Rows of each lane, shape (lanes,).
        n_kept: Rows of each lane that are no tail, shape (lanes,).
    """

    positions: NDArray[np.int64]
    log_counts: NDArray[np.float32]
    n_held: NDArray[np.int64]
    n_kept: NDArray[np.int64]

    @classmethod
    def empty(cls, n_lanes: int, n_rows: int) -> Rows:
        """Return rows of nothing."""
        shape = (n_lanes, n_rows + 1)
        zeros = np.zeros(n_lanes, np.int64)
        return cls(np.full(shape, NO_SLOT), np.zeros(shape, np.float32), zeros.copy(), zeros.copy())

    @property
    def capacity(self) -> int:
        """Rows a lane may have."""
        return int(self.positions.shape[1]) - 1

    def fill(
        self, lane: int, positions: NDArray[np.int64], log_counts: NDArray[np.float32] | None
    ) -> None:
        """Set what a lane holds for good."""
        n_held = len(positions)
        self.positions[lane] = NO_SLOT
        self.positions[lane, :n_held] = positions
        self.log_counts[lane] = 0.0
        if log_counts is not None:
            self.log_counts[lane, :n_held] = log_counts
        self.n_held[lane] = self.n_kept[lane] = n_held

    def add(self, lane: int, first_position: int, n_new: int) -> NDArray[np.int64]:
        """Append consecutive positions and return their rows."""
        rows: NDArray[np.int64] = self.n_held[lane] + np.arange(n_new)
        self.positions[lane, rows] = first_position + np.arange(n_new)
        self.n_held[lane] += n_new
        return rows

    def roll_back(self, lane: int) -> None:
        """Drop a lane's tail."""
        self.positions[lane, self.n_kept[lane] :] = NO_SLOT
        self.n_held[lane] = self.n_kept[lane]

    def copy_lane(self, lane: int, source: Rows, from_lane: int) -> None:
        """Take over another lane."""
        n_held = int(source.n_held[from_lane])
        self.fill(lane, source.positions[from_lane, :n_held], source.log_counts[from_lane, :n_held])
        self.n_kept[lane] = source.n_kept[from_lane]


@dataclass(slots=True, eq=False)
class Workspace:
    """Lanes for several streams.

    Attributes:
        layers: The model's layers.
        keys: Of each layer that has its own, shape (lanes, heads, rows + 1, size). Always finite:
            a row without a position is read with weight 0.
        values: Likewise.
        full: Rows of full-attention layers.
        sliding: Rows of sliding layers.
        next_position: Position of each lane's next slot, shape (lanes,).
        kept_position: The same before the tail.
    """

    layers: LayerMap
    keys: dict[int, torch.Tensor]
    values: dict[int, torch.Tensor]
    full: Rows
    sliding: Rows
    next_position: NDArray[np.int64] = field(init=False)
    kept_position: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Let all lanes begin at position 0."""
        self.next_position = np.zeros(self.n_lanes, np.int64)
        self.kept_position = np.zeros(self.n_lanes, np.int64)

    @classmethod
    def empty(
        cls, layers: LayerMap, sizes: tuple[int, int, int], weight: torch.Tensor
    ) -> Workspace:
        """Return lanes of nothing.

        Args:
            layers: The model's layers.
            sizes: Lanes, rows of full-attention layers, and rows of sliding layers.
            weight: Gives type and device.
        """
        n_lanes, n_full, n_sliding = sizes

        def zeros() -> dict[int, torch.Tensor]:
            shape = (n_lanes, layers.n_key_heads)
            return {
                **{
                    i: weight.new_zeros((*shape, n_full + 1, layers.head_size)) for i in layers.full
                },
                **{
                    i: weight.new_zeros((*shape, n_sliding + 1, layers.head_size))
                    for i in layers.sliding
                },
            }

        rows = (Rows.empty(n_lanes, n_full), Rows.empty(n_lanes, n_sliding))
        return cls(layers, zeros(), zeros(), *rows)

    @property
    def n_lanes(self) -> int:
        """Lanes, used or not."""
        return len(self.full.n_held)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Lanes, rows of full-attention layers, and rows of sliding layers."""
        return self.n_lanes, self.full.capacity, self.sliding.capacity

    def has_room(self, lanes: Sequence[int], n_new: int) -> bool:
        """Tell whether these lanes take so many more rows."""
        return all(
            int(rows.n_held[list(lanes)].max()) + n_new <= rows.capacity
            for rows in (self.full, self.sliding)
        )

    def load(self, caches: Sequence[BudgetedCache]) -> None:
        """Copy streams' caches into the first lanes; lanes behind them get one row of nothing."""
        copies = _Copies()
        for lane in range(self.n_lanes):
            if lane < len(caches):
                self._load_lane(lane, caches[lane], copies)
            else:
                for rows in (self.full, self.sliding):
                    rows.fill(lane, np.zeros(1, np.int64), None)
                self.next_position[lane] = self.kept_position[lane] = 1
        copies.carry_out()

    def take_lanes(self, places: Sequence[tuple[Workspace, int]]) -> None:
        """Copy lanes of other workspaces, tails included, into the first lanes."""
        self.load([])
        copies = _Copies()
        for lane, (source, from_lane) in enumerate(places):
            for rows, other, indices in (
                (self.full, source.full, self.layers.full),
                (self.sliding, source.sliding, self.layers.sliding),
            ):
                rows.copy_lane(lane, other, from_lane)
                span = slice(0, int(rows.n_held[lane]))
                for into, out_of in ((self.keys, source.keys), (self.values, source.values)):
                    for i in indices:
                        copies.add(into[i][lane, :, span], out_of[i][from_lane, :, span])
            self.next_position[lane] = source.next_position[from_lane]
            self.kept_position[lane] = source.kept_position[from_lane]
        copies.carry_out()

    def roll_back(self, lane: int) -> None:
        """Drop a lane's tail."""
        for rows in (self.full, self.sliding):
            rows.roll_back(lane)
        self.next_position[lane] = self.kept_position[lane]

    def newest(self, lane: int, n_new: int) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """Return a lane's last rows of each layer, keys and values of shape (1, heads, n, size)."""
        found = {}
        for rows, indices in ((self.full, self.layers.full), (self.sliding, self.layers.sliding)):
            end = int(rows.n_held[lane])
            for i in indices:
                found[i] = (
                    self.keys[i][lane : lane + 1, :, end - n_new : end],
                    self.values[i][lane : lane + 1, :, end - n_new : end],
                )
        return found

    def _load_lane(self, lane: int, cache: BudgetedCache, copies: _Copies) -> None:
        stores = [producer.stores for producer in cache.producers]
        if stores[0]:
            store = stores[0][0]
            counts = store.multiplicity
            log_counts = np.log(counts.astype(np.float32)) if (counts > 1).any() else None
            self.full.fill(lane, store.positions, log_counts)
            order = np.argsort(store.order()) if store.is_int8.any() else None
            for i, (own,) in zip(self.layers.full, stores, strict=True):
                for into, rows in ((self.keys[i], own.keys()), (self.values[i], own.values())):
                    in_order = rows if order is None else rows[:, :, torch.from_numpy(order)]
                    copies.add(into[lane, :, : len(store)], in_order[0])
        else:
            self.full.fill(lane, np.empty(0, np.int64), None)
        n_held = 0
        for i in self.layers.sliding:
            layer: Any = cache.layers[i]
            if layer.is_initialized:
                n_held = layer.keys.shape[2]
                copies.add(self.keys[i][lane, :, :n_held], layer.keys[0])
                copies.add(self.values[i][lane, :, :n_held], layer.values[0])
        self.sliding.fill(lane, cache.seen - n_held + np.arange(n_held), None)
        self.next_position[lane] = self.kept_position[lane] = cache.seen


class _Copies:
    """Many small copies, carried out in few kernels."""

    def __init__(self) -> None:
        self._into: list[torch.Tensor] = []
        self._out_of: list[torch.Tensor] = []

    def add(self, into: torch.Tensor, out_of: torch.Tensor) -> None:
        if out_of.numel():
            self._into.append(into)
            self._out_of.append(out_of)

    def carry_out(self) -> None:
        if self._into:
            torch._foreach_copy_(self._into, self._out_of)
