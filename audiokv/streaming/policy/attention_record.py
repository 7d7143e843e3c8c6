"""What the attention probe has said about each slot so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.policy.column import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.arrays import Floats, Indices, Ints, Mask


class AttentionRecord:
    """Attention statistics, one row a slot, kept for every policy that needs some.

    One probe counts as one query: the probe's own queries are averaged before they come here.
    The weights of a probe are the shares of attention the slots received, at least 0; they need
    not sum to one, since text positions take their part.

    Args:
        window_probes: How many of the latest probes the windowed mean covers (SnapKV's window).

    Raises:
        ValueError: The window is empty.
    """

    def __init__(self, window_probes: int = 32) -> None:
        if window_probes < 1:
            raise ValueError(f"a window of {window_probes} probes holds nothing")
        self.n_probes = 0
        self._window_probes = window_probes
        self._importance = Column(np.float64)
        self._accumulated = Column(np.float64)
        self._latest = Column(np.float64)
        self._recent = Column(np.float32, (window_probes,))
        self._n_observed = Column(np.int64)
        self._last_used = Column(np.int64)
        self._key_similarity = Column(np.float64)

    @property
    def importance(self) -> Floats:
        """Exponentially accumulated attention, I = alpha*A + (1-alpha)*I_prev; shape (held,)."""
        return self._importance.rows

    @property
    def accumulated(self) -> Floats:
        """Sum of all attention received (H2O)."""
        return self._accumulated.rows

    @property
    def latest(self) -> Floats:
        """Attention received from the latest probe (TOVA)."""
        return self._latest.rows

    @property
    def n_observed(self) -> Ints:
        """How many probes saw the slot; 0 while it waits for its first."""
        return self._n_observed.rows

    @property
    def is_observed(self) -> Mask:
        """Whether any probe saw the slot."""
        return self._n_observed.rows > 0

    @property
    def last_used(self) -> Ints:
        """Number of the latest probe that gave the slot at least an even share (LRU)."""
        return self._last_used.rows

    @property
    def key_similarity(self) -> Floats:
        """Cosine of the slot's key to the mean key, 0 until the cache reports it (KeyDiff)."""
        return self._key_similarity.rows

    @property
    def windowed(self) -> Floats:
        """Mean attention over the latest probes that saw the slot (SnapKV); shape (held,)."""
        n_seen = np.clip(self._n_observed.rows, 1, self._window_probes)
        summed: Floats = self._recent.rows.sum(axis=0, dtype=np.float64)
        return summed / n_seen

    @property
    def n_bytes(self) -> int:
        """Bytes allocated, spare capacity included."""
        return sum(column.n_bytes for column in self._columns())

    def append(self, n_slots: int) -> None:
        """Add slots that no probe has seen; they count as used now."""
        for column in self._columns():
            column.append(0, n_slots)
        if n_slots:
            held = len(self._last_used.rows)
            self._last_used.write_at(np.arange(held - n_slots, held), self.n_probes)

    def observe(self, weights: Floats, alpha: float) -> None:
        """Take in one probe.

        Args:
            weights: Attention each held slot received, shape (held,), finite and not negative.
            alpha: Weight of this probe in the importance, over 0 and up to 1.

        Raises:
            ValueError: Wrong shape, or a weight that is negative or not finite.
        """
        held = len(self._importance.rows)
        if weights.shape != (held,):
            raise ValueError(f"{weights.shape} attention weights for {held} slots")
        if held and not (weights.min() >= 0 and np.isfinite(weights.max())):
            raise ValueError("attention weights must be finite and at least 0")
        self.n_probes += 1
        # The first probe has no history to mix with: it is taken whole.
        mix = np.where(self._n_observed.rows == 0, 1.0, alpha)
        self._importance.write(self._importance.rows + mix * (weights - self._importance.rows))
        self._accumulated.write(self._accumulated.rows + weights)
        self._latest.write(weights)
        self._recent.write_plane(self.n_probes % self._window_probes, weights)
        self._n_observed.write(self._n_observed.rows + 1)
        used = np.flatnonzero(weights * held >= 1.0)
        self._last_used.write_at(used, self.n_probes)

    def observe_keys(self, similarity: Floats) -> None:
        """Take in how close each held slot's key is to the mean key.

        Args:
            similarity: Cosines averaged over layers and heads, shape (held,).

        Raises:
            ValueError: Wrong shape.
        """
        if similarity.shape != self._key_similarity.rows.shape:
            raise ValueError(
                f"{similarity.shape} key similarities for {len(self._key_similarity.rows)} slots"
            )
        self._key_similarity.write(similarity)

    def absorb(self, into: Indices, absorbed: Indices) -> None:
        """Add the attention of slots that are about to share another slot to that slot.

        Args:
            into: For each absorbed slot the slot that stands for it from now on.
            absorbed: The slots that go.
        """
        for column in (self._importance, self._accumulated, self._latest):
            summed: NDArray[np.float64] = column.rows.copy()
            np.add.at(summed, into, column.rows[absorbed])
            column.write(summed)

    def keep(self, indices: Indices) -> None:
        """Hold only these slots from now on."""
        for column in self._columns():
            column.keep(indices)

    def _columns(self) -> tuple[Column[np.float64] | Column[np.float32] | Column[np.int64], ...]:
        return (
            self._importance,
            self._accumulated,
            self._latest,
            self._recent,
            self._n_observed,
            self._last_used,
            self._key_similarity,
        )
