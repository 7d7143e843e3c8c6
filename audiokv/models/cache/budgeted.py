"""A cache that keeps to a budget by itself, by any of the policies."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from audiokv.models.cache.head_limits import HeadLimits
from audiokv.models.cache.layers import SlotLayer
from audiokv.models.cache.scored_heads import policy_by_head_scores
from audiokv.models.cache.similarity import key_similarity
from audiokv.models.cache.slot_cache import SlotCache
from audiokv.models.probe import AttentionProbe
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.assembly import DEFAULT_OPTIONS, open_driver
from audiokv.streaming.policy.head_record import HeadRecord
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import Pool, Reason, SlotMarks
from audiokv.streaming.policy.protocol import HeadwisePolicy
from audiokv.streaming.policy.registry import policy_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from audiokv.streaming.policy.assembly import DriverOptions
    from audiokv.streaming.policy.driver import PolicyDriver
    from audiokv.streaming.policy.protocol import EvictionPolicy

    KeysAndValues = tuple[torch.Tensor, torch.Tensor]
    Limits = int | Sequence[int] | Sequence[Sequence[int]] | NDArray[np.int64]

# Policies that go by age, place or keys alone: asking for attention would be wasted on them.
_WITHOUT_ATTENTION = frozenset(
    {"full", "random", "uniform", "sinks+uniform", "fifo", "streaming-llm", "keydiff"}
)
_BY_KEYS = frozenset({"keydiff"})


class BudgetedCache(SlotCache):
    """Cache that after every step holds no more slots than its budget.

    Works with `model.generate(..., cache=cache)` and with any loop that calls the model. Every
    token of the model is a slot; what is known about audio slots is told by `expect`. An open
    tail is not touched until it is closed, so leave `tail_slots` for it.

    Args:
        config: Config of the model (`model.config`), loaded with our attention.
        budget: Slots a head may hold, prompt included: one number for all, one for each managed
            layer, or one for each of its key heads.
        policy: Name of a policy (`POLICY_NAMES`), or one with other parameters.
        slot_ms: Length of one slot in ms.
        options: Kind of speech and the policy's other settings.
        per_head: Whether heads may hold different slots, for policies that can use it; always so
            where the budget differs by layer or head, and with head scores.
        head_scores: How well each head follows speech (`load_head_scores`), shape (layers,
            heads): the policy "audiokv" then divides one budget among the heads by them.
        is_cross: Whether this is the cross-attention cache of an encoder-decoder model.
        int8_buffer: Whether slots of the buffer pool are held as int8 until they are promoted.
        tail_slots: Part of the budget that is left free for tails.
        probe: Measures attention; by default one that suits the policy.

    Raises:
        ConfigError: There is no such policy, the budget does not fit the model or its
            tail, head scores fit neither model nor policy, or the model does not use our attention.
    """

    def __init__(  # noqa: PLR0913  each is one decision with a default
        self,
        config: Any,  # noqa: ANN401  any model's config
        budget: Limits,
        policy: str | EvictionPolicy = "audiokv",
        *,
        slot_ms: int = 20,
        options: DriverOptions = DEFAULT_OPTIONS,
        per_head: bool = False,
        head_scores: NDArray[np.float64] | None = None,
        is_cross: bool = False,
        int8_buffer: bool = False,
        tail_slots: int = 0,
        probe: AttentionProbe | None = None,
    ) -> None:
        chosen = policy
        if isinstance(chosen, str):
            chosen = policy_by_name(chosen, slot_ms, options.profile)
        is_uniform = np.ndim(budget) == 0
        per_head = per_head or not is_uniform or head_scores is not None
        if probe is None and (per_head or chosen.name not in _WITHOUT_ATTENTION):
            probe = AttentionProbe()
        super().__init__(config, per_head=per_head, is_cross=is_cross, probe=probe)
        self._slot_ms = slot_ms
        self._options = options
        self._tail_slots = tail_slots
        self._int8_buffer = int8_buffer
        self._n_heads = self._key_heads(config)
        if head_scores is not None:
            shape = (len(self.producers), self._n_heads)
            chosen = policy_by_head_scores(chosen, head_scores, shape, options)
        limits = self._limits(budget)
        self.budget = int(limits.mean())
        if int(limits.min()) <= tail_slots:
            raise ConfigError(
                "budget_too_small",
                f"A budget of {int(limits.min())} slots leaves none beside a tail of {tail_slots}.",
                "Raise the budget or lower tail_slots.",
            )
        self._policy = chosen if is_uniform else HeadLimits(chosen, limits - tail_slots)
        self._expected: deque[SlotMarks] = deque()
        self._driver = self._new_driver()

    @property
    def driver(self) -> PolicyDriver:
        """The policy at work: its ledger and counters, commitments and segment ends."""
        return self._driver

    @property
    def ledger(self) -> SlotLedger:
        """What is known about each row; read only."""
        return self._driver.ledger

    @property
    def room_slots(self) -> int:
        """Slots that a tail may still bring."""
        return self.budget - math.ceil(self.held_per_head)

    def expect(self, marks: Iterable[SlotMarks]) -> None:
        """Tell what is known about the next slots, in time order.

        Slots that nothing was told about count as voiced and follow in time.
        """
        self._expected.extend(marks)

    def take_step(
        self, states: Mapping[int, KeysAndValues], importance: NDArray[np.float32]
    ) -> None:
        """Take in a step that was computed outside, together with those of other streams.

        The cache is then as if the model had been called with it alone.

        Args:
            states: New keys and values of each layer that has its own, shape (1, heads, new, size).
            importance: As `importance`, for the rows held after the step.
        """
        for index, (keys, values) in states.items():
            layer: Any = self.layers[index]
            add = layer.append if isinstance(layer, SlotLayer) else layer.update
            add(keys, values)
        self._stepped(importance)

    def observe_tail(self, n_slots: int, importance: NDArray[np.float32]) -> None:
        """Take in what a step of the open tail attended to, when it was computed outside.

        Args:
            n_slots: Slots of the tail so far, which are held elsewhere.
            importance: As `importance`, for the rows held and those of the tail.

        Raises:
            ConfigError: The tail went over the budget.
        """
        self._check_room(self.room_slots - n_slots)
        self._importance = importance
        if importance.any():
            self._observe(importance)

    def share_silence(self) -> None:
        """Let runs of silence share a slot each."""
        self.share(self._driver.share_silence())

    def commit_tail(self) -> None:
        """Keep the open tail as ordinary slots, and make room for them."""
        super().commit_tail()
        self._admit_new_slots()
        self._make_room()

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last positions, given as a negative number; earlier slots stay bit for bit."""
        super().crop(tokens_to_remove)
        gone = np.arange(self.held, self.ledger.held)
        self.ledger.evict(gone, Reason.EXPIRED)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()  # type: ignore[no-untyped-call]  # transformers is typed in part
        self._expected.clear()
        self._driver = self._new_driver()

    def _stepped(self, importance: NDArray[np.float32] | None) -> None:
        super()._stepped(importance)
        if self._tail_start is None:
            self._admit_new_slots()
        else:
            self._check_room(self.room_slots)
        if importance is not None and importance.any():
            self._observe(importance)
        if self._tail_start is None:
            self._make_room()

    def _check_room(self, room_slots: int) -> None:
        if room_slots < 0:
            raise ConfigError(
                "tail_too_long",
                f"A tail went {-room_slots} slots over a budget of {self.budget}.",
                "Close it earlier, or open the cache with more tail_slots.",
            )

    def _admit_new_slots(self) -> None:
        marks: list[SlotMarks] = []
        now_ms = self.ledger.now_ms
        for _ in range(self.held - self.ledger.held):
            if self._expected:
                marks.append(self._expected.popleft())
            else:
                marks.append(SlotMarks(start_ms=now_ms, end_ms=now_ms + self._slot_ms))
            now_ms = marks[-1].end_ms
        self._driver.append(marks)

    def _observe(self, importance: NDArray[np.float32]) -> None:
        # A tail takes its part of the attention, but only rows of the ledger are judged.
        n_rows = self.ledger.held
        weights = importance[:, :, :n_rows].astype(np.float64)
        received = weights.sum(axis=(0, 1)) / importance.sum(dtype=np.float64)
        by_head = None
        if self.ledger.heads is not None:
            totals = importance.sum(axis=-1, keepdims=True, dtype=np.float64)
            by_head = weights / np.maximum(totals, np.finfo(np.float64).tiny)
        self._driver.observe(received, by_head)

    def _make_room(self) -> None:
        if self._policy.name in _BY_KEYS and self.held > self._driver.budget.total_slots:
            similarity = key_similarity(self.producers, self.positions)
            self.ledger.attention.observe_keys(similarity)
        if self.ledger.heads is not None and isinstance(self._policy, HeadwisePolicy):
            self._make_room_by_head(self.ledger.heads, self._policy)
        else:
            plan = self._driver.plan()
            if plan:
                self.keep(self._driver.apply(plan))
        promoted = self._driver.settle()
        if self._int8_buffer:
            self.promote(promoted)
            self.quantize(np.flatnonzero(self.ledger.pool == Pool.BUFFER))

    def _make_room_by_head(self, heads: HeadRecord, policy: HeadwisePolicy) -> None:
        n_keep = min(self._driver.budget.total_slots, self.ledger.held)
        if isinstance(policy, HeadLimits):
            is_kept = policy.are_kept(heads)
        else:
            is_kept = int(heads.is_held.sum()) <= heads.n_layers * heads.n_heads * n_keep
        if is_kept:
            return
        mask = heads.is_held & policy.keep_mask(self.ledger, n_keep)
        self.hold(mask)
        heads.hold_only(mask)
        self.ledger.evict(np.flatnonzero(~mask.any(axis=(0, 1))), Reason.FORCED)

    def _limits(self, budget: Limits) -> NDArray[np.int64]:
        shape = (len(self.producers), self._n_heads)
        limits = np.asarray(budget, np.int64)
        if limits.ndim == 1:
            limits = limits[:, None]
        if limits.ndim and limits.shape not in {shape, (shape[0], 1)}:
            raise ConfigError(
                "budget_misfit",
                f"A budget of shape {limits.shape} was given for {shape[0]} layers "
                f"of {shape[1]} key heads.",
                "Give one number, one for each layer, or one for each head of each layer.",
            )
        return np.broadcast_to(limits, shape)

    def _key_heads(self, config: Any) -> int:  # noqa: ANN401  any model's config
        """Key heads of the managed layers, which may differ from those of sliding layers."""
        text_config = config.get_text_config(decoder=True)
        layer_config = text_config.per_layer_config[self.layers.index(self.producers[0])]
        n_heads = getattr(layer_config, "num_key_value_heads", None)
        return int(n_heads or layer_config.num_attention_heads)

    def _new_driver(self) -> PolicyDriver:
        heads = HeadRecord(len(self.producers), self._n_heads) if self._per_head else None
        return open_driver(
            self._policy,
            self.budget - self._tail_slots,
            self._slot_ms,
            self._options,
            SlotLedger(heads=heads),
        )
